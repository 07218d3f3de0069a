"""Owns the Remote seam: what may be asked of a machine that is not this one. It knows nothing of jobs or of SSH.

Every method raises HostUnreachable when the host does not answer, also in the middle of a read; HostRefused when it
lets us not in; EngineError when it is there and the thing cannot be done. All of them may be called from any thread.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Protocol

from rung.jobs.model.errors import EngineError

# Kept of what a command prints, each of output and errors; the rest is read and dropped.
OUTPUT_BYTES = 1 << 20
# Linux takes no longer argument, and the command line is one argument of the login shell there.
COMMAND_BYTES = (1 << 17) - 1
# The longest path that fits a UNIX socket's address.
SOCKET_PATH_BYTES = 107


@dataclass(frozen=True)
class CommandResult:
    """How a command ended: its exit code (-1: ended by a signal), and the beginning of what it printed."""

    code: int
    out: bytes
    err: bytes


@dataclass(frozen=True)
class RemoteFile:
    """A file or folder on the host; for a symbolic link, what it leads to."""

    path: str
    size: int
    written_at: float
    is_folder: bool
    mode: int


class Files(Protocol):
    """The host's files, for as long as the session lasts. Relative paths begin in the login folder."""

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return at most this many bytes from an offset on; fewer only at the end of the file."""

    def write(self, path: str, chunks: Iterable[bytes], mode: int) -> None:
        """Write a file whole: it appears under its name when all of it is there, or not at all."""

    def entries(self, folder: str) -> list[RemoteFile]:
        """Return what is in a folder; nothing where there is no such folder."""

    def stat(self, path: str) -> RemoteFile | None:
        """Return what is at a path, or None when there is nothing."""

    def make_folder(self, path: str) -> None:
        """Make a folder with its parents; one that is there already is fine."""


class RemoteSocket(Protocol):
    """A connection to a UNIX socket on the host, used like any socket. The end of a stream is b"" as usual; a broken
    connection is never taken for it, but raises HostUnreachable."""

    def recv(self, size: int) -> bytes: ...

    def sendall(self, data: bytes) -> None: ...

    def settimeout(self, seconds: float | None) -> None: ...

    def shutdown(self, how: int) -> None: ...

    def makefile(self, mode: str = "rb") -> IO[bytes]: ...

    def close(self) -> None: ...


class Remote(Protocol):
    """One host, reached over one connection that all its users share."""

    name: str

    def run(self, argv: Sequence[str], stdin: bytes | None = None, *, timeout: float) -> CommandResult:
        """Run a command and wait for its end. After `timeout` seconds we stop listening; it may go on there."""

    def open_socket(self, path: str) -> RemoteSocket: ...

    def files(self) -> AbstractContextManager[Files]: ...

    def drop_connection(self) -> None:
        """Cut the connection as a network would; it is made again by itself."""

    def close(self) -> None:
        """End the connection, and every read that waits on it."""


def command_line(argv: Sequence[str]) -> bytes:
    """Return the line that makes a POSIX shell run exactly these words, whatever characters they hold."""
    line = os.fsencode(shlex.join(argv))
    if not argv or b"\0" in line:
        raise EngineError(f"{shlex.join(argv)!r}: no command can be empty or hold a NUL character")
    if len(line) > COMMAND_BYTES:
        raise EngineError(f"{argv[0]}: the command is {len(line)} bytes long, at most {COMMAND_BYTES} can be sent")
    return line


def socket_path(path: str) -> str:
    """Return a path that can be a UNIX socket's, or raise."""
    if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise EngineError(f"{path!r}: no socket can have this path (absolute, at most {SOCKET_PATH_BYTES} bytes)")
    return path
