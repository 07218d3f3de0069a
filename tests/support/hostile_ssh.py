"""Plays a host that has been taken over: a real SSH server on the loopback, with files, commands and an engine.

Without a lie it is an honest host: commands run in a folder of its own, files are those of that folder, and the engine
plays containers. A lie replaces the answer to a question; a test may set lies at any time. The server uses paramiko's
side for servers, and it knows no root: `id` says that the account is 1000.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko

from rung.jobs.model.host import Host
from tests.support.hostile_engine import HostileEngine
from tests.support.sshd import keygen

STREAM = "direct-streamlocal@openssh.com"
ID = """#!/bin/sh
case "$1" in -un) echo rung ;; *) echo 1000 ;; esac
"""
SMI = """#!/bin/sh
case "$*" in *query-gpu*) echo '0, {uuid}, 16384, 535.1.1, 6.0, {name}' ;; esac
"""


@dataclass(frozen=True)
class Reply:
    """What a command says: output, errors, exit code. Without a code it ends without one, or never."""

    out: Iterable[bytes] = ()
    err: Iterable[bytes] = ()
    code: int | None = 0
    ends: bool = True


@dataclass
class Lies:
    """What a host lies about. Each function gets the question and returns a lie, or None for the truth."""

    command: Callable[[str], Reply | None] = lambda command: None
    entries: Callable[[str], list[paramiko.SFTPAttributes] | None] = lambda folder: None
    attributes: Callable[[str], paramiko.SFTPAttributes | None] = lambda path: None
    content: Callable[[str, int, int], bytes | None] = lambda path, offset, size: None
    # How long each answer about a file takes.
    seconds: float = 0.0
    opens_channels: bool = True


def entry(name: str, size: int = 5, *, mode: int = 0o100644, at: int = 1_700_000_000) -> paramiko.SFTPAttributes:
    """Return an entry of a folder with any name and size, as a host may invent it."""
    found = paramiko.SFTPAttributes()
    found.filename, found.st_mode, found.st_size = name, mode, size & (2**64 - 1)
    found.st_atime = found.st_mtime = at & 0xFFFFFFFF
    found.st_uid = found.st_gid = 1000
    return found


def folder(name: str) -> paramiko.SFTPAttributes:
    return entry(name, 4096, mode=0o040755)


def link(name: str, size: int = 5) -> paramiko.SFTPAttributes:
    return entry(name, size, mode=0o120777)


class Endless(list[paramiko.SFTPAttributes]):
    """A folder whose listing never ends."""

    def __init__(self, make: Callable[[int], paramiko.SFTPAttributes]) -> None:
        super().__init__([make(0)])
        self._make, self._given = make, 0

    def __getitem__(self, part: Any) -> Any:
        if part.start:
            return self
        self._given += 16
        return [self._make(number) for number in range(self._given - 16, self._given)]


class _Handle(paramiko.SFTPHandle):
    def __init__(self, host: HostileHost, path: str, flags: int, number: int) -> None:
        super().__init__(flags)
        self._host, self._path, self._number = host, path, number

    def read(self, offset: int, length: int) -> Any:
        self._host.pause()
        lie = self._host.lies.content(self._path, offset, length)
        return os.pread(self._number, length, offset) if lie is None else lie or paramiko.SFTP_EOF

    def write(self, offset: int, data: bytes) -> int:
        os.pwrite(self._number, data, offset)
        return paramiko.SFTP_OK

    def stat(self) -> Any:
        lie = self._host.lies.attributes(self._path)
        return lie or paramiko.SFTPAttributes.from_stat(os.fstat(self._number))

    def chattr(self, attr: paramiko.SFTPAttributes) -> int:
        if attr.st_mode is not None:
            os.fchmod(self._number, attr.st_mode)
        return paramiko.SFTP_OK

    def close(self) -> None:
        os.close(self._number)


def _answering(act: Callable[..., Any]) -> Callable[..., Any]:
    """Turn an error of the system into SFTP's."""

    def answer(self: _Files, *words: Any) -> Any:
        self.host.pause()
        try:
            found = act(self, *words)
        except (OSError, ValueError) as error:
            number = error.errno if isinstance(error, OSError) and error.errno else 22
            return paramiko.SFTPServer.convert_errno(number)
        return paramiko.SFTP_OK if found is None else found

    return answer


class _Files(paramiko.SFTPServerInterface):
    """The files of the host. Relative paths begin in its home."""

    def __init__(self, server: _Session, *words: Any) -> None:
        super().__init__(server, *words)
        self.host = server.host

    def _at(self, path: str) -> str:
        return os.path.join(self.host.home, path)  # noqa: PTH118

    def canonicalize(self, path: str) -> str:
        return os.path.normpath(self._at(path))

    @_answering
    def list_folder(self, path: str) -> Any:
        lie = self.host.lies.entries(path)
        if lie is not None:
            return lie
        with os.scandir(self._at(path)) as found:
            return [paramiko.SFTPAttributes.from_stat(each.stat(follow_symlinks=False), each.name) for each in found]

    @_answering
    def stat(self, path: str) -> Any:
        return self.host.lies.attributes(path) or paramiko.SFTPAttributes.from_stat(os.stat(self._at(path)))  # noqa: PTH116

    @_answering
    def lstat(self, path: str) -> Any:
        return self.host.lies.attributes(path) or paramiko.SFTPAttributes.from_stat(os.lstat(self._at(path)))

    @_answering
    def open(self, path: str, flags: int, attr: paramiko.SFTPAttributes) -> Any:
        lies = self.host.lies.content(path, 0, 1) is not None and not flags & os.O_CREAT
        return _Handle(self.host, path, flags, os.open("/dev/null" if lies else self._at(path), flags, 0o600))

    @_answering
    def remove(self, path: str) -> None:
        os.unlink(self._at(path))  # noqa: PTH108

    @_answering
    def mkdir(self, path: str, attr: paramiko.SFTPAttributes) -> None:
        os.mkdir(self._at(path))  # noqa: PTH102

    @_answering
    def posix_rename(self, old: str, new: str) -> None:
        os.replace(self._at(old), self._at(new))  # noqa: PTH105


class _Session(paramiko.ServerInterface):
    """One connection: every key may log in, and every channel may open."""

    def __init__(self, host: HostileHost) -> None:
        self.host = host
        self.streams: set[int] = set()

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if kind == STREAM:
            self.streams.add(chanid)
        known = kind in ("session", STREAM) and self.host.lies.opens_channels
        return paramiko.OPEN_SUCCEEDED if known else paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.host.start(self.host.run_command, channel, command.decode("utf-8", "surrogateescape"))
        return True


@dataclass
class HostileHost:
    """A host on the loopback that tells the truth until a test sets its lies."""

    place: Path
    name: str = "liar"
    gpu: str = "Liar"
    lies: Lies = field(default_factory=Lies)
    engine: HostileEngine = field(default_factory=HostileEngine)
    commands: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home, self._programs = self.place / "account", self.place / "bin"
        for each in (self.home, self._programs):
            each.mkdir(parents=True)
        uuid = f"GPU-{self.name.encode().hex().ljust(32, '0')[:32]}"
        for program, text in {"id": ID, "nvidia-smi": SMI.format(uuid=uuid, name=self.gpu)}.items():
            (self._programs / program).write_text(text)
            (self._programs / program).chmod(0o755)
        self._key = keygen(self.place / "host_key")
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.port = int(self._socket.getsockname()[1])
        self._transports: list[paramiko.Transport] = []
        self.start(self._accept)

    def host(self, user: str = "rung", **fields: Any) -> Host:
        return Host(self.name, "127.0.0.1", user, self.port, **fields)

    @property
    def known_line(self) -> str:
        key = Path(f"{self._key}.pub").read_text().split()[:2]
        return f"[127.0.0.1]:{self.port} {' '.join(key)}\n"

    def pause(self) -> None:
        if self.lies.seconds:
            self.engine.over.wait(self.lies.seconds)

    def cut(self) -> None:
        """Drop all connections."""
        for transport in self._transports:
            transport.close()

    def close(self) -> None:
        self.engine.over.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.cut()

    def start(self, act: Callable[..., None], *words: Any) -> None:
        threading.Thread(target=self._quietly, args=(act, *words), daemon=True).start()

    def _quietly(self, act: Callable[..., None], *words: Any) -> None:
        # The other side hangs up in the middle of lies all the time.
        with suppress(OSError, EOFError, ValueError, paramiko.SSHException):
            act(*words)

    def _accept(self) -> None:
        while not self.engine.over.is_set():
            opened, _ = self._socket.accept()
            self.start(self._serve, opened)

    def _serve(self, opened: socket.socket) -> None:
        transport = paramiko.Transport(opened)
        self._transports.append(transport)
        transport.add_server_key(paramiko.Ed25519Key.from_private_key_file(str(self._key)))
        transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Files)
        session = _Session(self)
        transport.start_server(server=session)
        # paramiko closes a channel that nobody holds.
        held: list[paramiko.Channel] = []
        while transport.is_active():
            channel = transport.accept(0.5)
            held = [each for each in held if not each.closed]
            if channel is not None:
                held.append(channel)
                if channel.get_id() in session.streams:
                    self.start(self.engine.serve, channel)

    # Commands

    def run_command(self, channel: paramiko.Channel, command: str) -> None:
        self.commands.append(command)
        reply = self.lies.command(command) or self._honest(command, channel)
        for piece in reply.out:
            channel.sendall(piece)
        for piece in reply.err:
            channel.sendall_stderr(piece)
        if not reply.ends:
            self.engine.over.wait()
        if reply.code is not None:
            channel.send_exit_status(reply.code & 0xFFFFFFFF)
        channel.shutdown_write()
        channel.close()

    def _honest(self, command: str, channel: paramiko.Channel) -> Reply:
        # The command line itself says how long the input is.
        sized = re.match(r"head -c (\d+) \|", command)
        stdin = b""
        while sized and len(stdin) < int(sized[1]) and (piece := channel.recv(1 << 16)):
            stdin += piece
        env = {"HOME": str(self.home), "PATH": f"{self._programs}:{os.environ['PATH']}"}
        words = ["sh", "-c", os.fsencode(command)]
        done = subprocess.run(words, input=stdin, env=env, cwd=self.home, capture_output=True)
        return Reply([done.stdout], [done.stderr], done.returncode)


def endless(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece
