"""Forks the wrappers of attempts on the controller's machine, so that they share the memory of one interpreter.

Runs as `python -I -S wrapper_server.py FOLDER`, standard library only, Python 3.8+. FOLDER is private; a lock on it
makes the server the only one there. It listens on the socket in it, takes one request a connection, and answers
nothing itself: the fork is the wrapper, and says when the attempt is claimed. Wrappers outlive the server and whoever
asked. The server ends, and removes FOLDER, when nobody has asked for a while.
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import fcntl
import gc
import json
import locale
import os
import signal
import socket
import struct
import sys
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from rung_inside import wrapper  # noqa: E402

# A server costs as much as a wrapper did, and is made in less than a tenth of a second.
IDLE_SECONDS = 10.0
# Whoever connects sends its request at once.
REQUEST_SECONDS = 10.0
MOST_BYTES = 16 << 20
BACKLOG = 1024
# The exit code of a server that finds another one in the folder.
BUSY = 3
PREFIX, NAME, DRAFT = "wrappers-", "socket", "draft"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# What the kernel shows of a process begins with these fields of /proc/PID/stat: its words, and its variables.
WORDS, VARIABLES = (45, 46), (47, 48)


def main(arguments: list[str]) -> int:
    """Return as soon as wrappers can be asked for; a process of its own goes on."""
    reset_signals()
    folder = os.open(arguments[0], FOLDER)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return BUSY
    listening = listen(folder)
    if os.fork():
        return 0
    remove_leftovers(arguments[0])
    codecs.lookup("ascii")  # a codec is a module, which each wrapper would load for itself
    # A collection would write to every object, and so copy the memory that the wrappers share.
    gc.disable()
    gc.freeze()
    serve(listening, folder)
    os.rmdir(arguments[0])
    return 0


def reset_signals() -> None:
    """Undo what the process that started this one ignores or blocks: a job inherits it."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def listen(folder: int) -> socket.socket:
    """Return a socket that is in the folder only when it can be connected to; replaces that of a killed server."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(DRAFT, dir_fd=folder)
    # However long the path of the folder is, this one is short enough for a socket.
    listening.bind("/proc/self/fd/%d/%s" % (folder, DRAFT))
    listening.listen(BACKLOG)
    os.rename(DRAFT, NAME, src_dir_fd=folder, dst_dir_fd=folder)
    return listening


def remove_leftovers(own: str) -> None:
    """Remove the folders of other servers of this home that were killed."""
    home, name = os.path.split(own)
    for other in os.listdir(home):
        if other.startswith(PREFIX) and other != name:
            with contextlib.suppress(OSError):
                remove(os.path.join(home, other))


def remove(path: str) -> None:
    """Remove the folder of a server; an error if that runs, because of its lock."""
    folder = os.open(path, FOLDER)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in (NAME, DRAFT):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        os.rmdir(path)
    finally:
        os.close(folder)


def serve(listening: socket.socket, folder: int) -> None:
    """Fork a wrapper for every connection, until none has come for a while."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that no wrapper stays a zombie
    listening.settimeout(IDLE_SECONDS)
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            if listening.gettimeout() == 0:
                return
            # Those who have connected before the socket is gone are still served.
            os.unlink(NAME, dir_fd=folder)
            listening.settimeout(0)
            continue
        attend(connection, listening, folder)
        connection.close()


def attend(connection: socket.socket, listening: socket.socket, folder: int) -> None:
    """Fork the wrapper that a connection asks for. Where that fails, the end of the connection says so."""
    try:
        if os.fork():
            return
    except OSError:
        return
    try:
        listening.close()
        os.close(folder)
        become_wrapper(connection)
    finally:
        os._exit(0)


def become_wrapper(connection: socket.socket) -> None:
    """Run an attempt as a process that its controller has started itself would."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request = receive(connection)
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    set_variables(request["env"])
    show(WORDS, [sys.executable, "-I", wrapper.__file__, request["folder"], *map(str, request["cores"])])
    # By this variable the cores that are taken are found.
    show(VARIABLES, ["RUNG_JOB=" + request["env"].get("RUNG_JOB", "")])
    if request["cores"]:
        wrapper.bind(request["cores"])
    if not given_up(connection):
        wrapper.run_attempt(request["folder"], connection.detach())


def set_variables(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    # As an interpreter does that is started with these (PEP 538): a job has the same variables in both ways.
    try:
        name = locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:
        name = "C"
    if name == "C" and not variables.get("LC_ALL"):
        os.environ["LC_CTYPE"] = "C.UTF-8"


def receive(connection: socket.socket) -> dict[str, Any]:
    """Return the request: one line of JSON, from the user whose server this is."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user != os.geteuid():
        raise PermissionError("another user")
    connection.settimeout(REQUEST_SECONDS)
    data = bytearray()
    while not data.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part or len(data) > MOST_BYTES:
            raise ValueError("no whole request")
        data += part
    request: dict[str, Any] = json.loads(data)
    return request


def given_up(connection: socket.socket) -> bool:
    """Return whether whoever asked waits no more: it is dead, or has started the attempt in another way."""
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False


def show(area: tuple[int, int], words: list[str]) -> None:
    """Replace what `ps` shows of this process, as far as there is room: it would be what it shows of the server."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    begin, end = int(fields[area[0]]), int(fields[area[1]])
    if 0 < begin < end:
        text = "\0".join(words).encode("utf-8", "surrogateescape")[: end - begin - 1]
        ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
