"""Forks the wrappers of attempts on the controller's machine, so that they share the memory of one interpreter.

Runs as `python -I -S wrapper_server.py FOLDER`, standard library only, Python 3.8+. FOLDER is private; a lock on it
makes the server the only one there. It listens on the socket in it, takes one request a connection, and answers
nothing itself: the fork is the wrapper, and says when the attempt is claimed. Wrappers outlive the server and whoever
asked. The server ends, and removes FOLDER, when nobody has asked for a while.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import locale
import os
import signal
import socket
import struct
import sys
import types

# The modules beside this one, without what their package loads: the module threading alone, which does something in
# every fork, would cost each wrapper 400 KB.
package = types.ModuleType("rung_inside")
package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
sys.modules["rung_inside"] = package

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
    folder, cwd, umask, named, *pairs = receive(connection)
    cores = [] if named == "-" else named.split()
    variables = with_locale(dict(pair.split("=", 1) for pair in pairs))
    os.umask(int(umask))
    os.chdir(cwd)
    show(WORDS, [sys.executable, "-I", wrapper.__file__, folder, *cores])
    # By this variable the cores that are taken are found.
    show(VARIABLES, ["RUNG_JOB=" + variables.get("RUNG_JOB", "")])
    if cores:
        wrapper.bind([int(core) for core in cores])
    if not given_up(connection):
        wrapper.run_attempt(folder, connection.detach(), variables)


def with_locale(variables: dict[str, str]) -> dict[str, str]:
    """Return the variables as an interpreter that is started with them passes them on (PEP 538)."""
    os.unsetenv("LC_CTYPE")  # this interpreter has set it
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if name in variables:
            os.putenv(name, variables[name])
    try:
        name = locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:
        name = "C"
    return variables if name != "C" or variables.get("LC_ALL") else dict(variables, LC_CTYPE="C.UTF-8")


def receive(connection: socket.socket) -> list[str]:
    """Return the words of a request: each ends with a zero byte, and only the last one is empty."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user != os.geteuid():
        raise PermissionError("another user")
    connection.settimeout(REQUEST_SECONDS)
    data = b""
    while not data.endswith(b"\0\0"):
        part = connection.recv(1 << 16)
        if not part or len(data) > MOST_BYTES:
            raise ValueError("no whole request")
        data += part
    return data[:-2].decode("utf-8", "surrogateescape").split("\0")


def given_up(connection: socket.socket) -> bool:
    """Return whether whoever asked waits no more: it is dead, or has started the attempt in another way."""
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False


def show(area: tuple[int, int], words: list[str]) -> None:
    """Replace what the kernel shows of this process, as far as there is room: it would be what it shows of the server.

    An error where that is forbidden; the attempt is then started in the other way.
    """
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    begin, end = int(fields[area[0]]), int(fields[area[1]])
    text = "\0".join(words).encode("utf-8", "surrogateescape")[: end - begin - 1]
    memory = os.open("/proc/self/mem", os.O_WRONLY)
    os.pwrite(memory, text.ljust(end - begin, b"\0"), begin)
    os.close(memory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
