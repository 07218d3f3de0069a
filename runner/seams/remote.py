"""Defines the interface of a remote machine. It knows nothing about jobs or SSH.

Every method raises HostUnreachable when the host does not answer, also in the middle of a read; HostRefused when it
does not accept our login; EngineError when the host answers and the call fails. Call them from any thread.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from rung.jobs.model.errors import EngineError
from rung.jobs.model.terminal_text import clean

# So much of a command's output, and of its errors, is kept; the remainder is read and dropped.
OUTPUT_BYTES = 1 << 20
# The longest argument on Linux, less what is put around a command; its line is one argument of the login shell there.
COMMAND_BYTES = (1 << 17) - 1 - 64
# The longest path that fits a UNIX socket's address.
SOCKET_PATH_BYTES = 107
# The longest name of a file on Linux.
NAME_BYTES = 255


@dataclass(frozen=True)
class CommandResult:
    """How a command ended: its exit code (-1: ended by a signal), and the beginning of its output."""

    code: int
    out: bytes
    err: bytes


@dataclass(frozen=True)
class RemoteFile:
    """A file or folder on the host; for a symbolic link, its target."""

    path: str
    size: int
    written_at: float
    is_folder: bool
    mode: int


class Files(Protocol):
    """The files of a host, for one session. Relative paths begin in the login folder."""

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return `size` bytes from an offset on; fewer only at the end of the file."""

    def write(self, path: str, chunks: Iterable[bytes], mode: int) -> None:
        """Write a file atomically: it appears under its name only when it is complete."""

    def entries(self, folder: str) -> list[RemoteFile]:
        """Return the entries of a folder, their names checked; none if there is no such folder."""

    def stat(self, path: str) -> RemoteFile | None:
        """Return the entry at a path, or None."""

    def make_folder(self, path: str) -> None:
        """Make a folder with its parents, if it is missing."""


class RemoteSocket(Protocol):
    """A connection to a UNIX socket on the host, used like any socket. The end of a stream is b"" as usual; a broken
    connection raises HostUnreachable instead."""

    def recv(self, size: int) -> bytes: ...

    def sendall(self, data: bytes) -> None: ...

    def settimeout(self, seconds: float | None) -> None: ...

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...


class Remote(Protocol):
    """One host, over one connection that all callers share."""

    name: str

    def run(self, argv: Sequence[str], stdin: bytes | None = None, *, timeout: float) -> CommandResult:
        """Run a command and wait for its end. After `timeout` seconds we stop waiting; it may still run there."""

    def open_socket(self, path: str) -> RemoteSocket: ...

    def files(self) -> AbstractContextManager[Files]: ...

    def drop_connection(self) -> None:
        """Cut the connection, as a network failure would; it reconnects by itself."""

    def close(self) -> None:
        """End the connection, and every read that waits on it."""


def command_line(argv: Sequence[str]) -> bytes:
    """Return the line that makes a POSIX shell run exactly these arguments, whatever characters they contain."""
    line = os.fsencode(shlex.join(argv))
    if not argv or b"\0" in line:
        raise EngineError(f"{shlex.join(argv)!r}: no command can be empty or contain a NUL character")
    if len(line) > COMMAND_BYTES:
        raise EngineError(f"{argv[0]}: the command is {len(line)} bytes long, at most {COMMAND_BYTES} can be sent")
    return line


def file_name(name: str) -> str:
    """Return a name that a host reports if a file in a folder can have it, or raise: a path would lead elsewhere."""
    if (
        name in ("", ".", "..")
        or "/" in name
        or "\0" in name
        or len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES
    ):
        raise EngineError(f"{clean(name)[:100]!r} is no name of a file")
    return name


def socket_path(path: str) -> str:
    """Return the path if it can be the path of a UNIX socket, or raise."""
    if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise EngineError(f"{path!r}: no socket can have this path (absolute, at most {SOCKET_PATH_BYTES} bytes)")
    return path
