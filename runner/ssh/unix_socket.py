"""Wraps a channel to a UNIX socket on a host, so that http.client and the docker SDK can use it like a socket.

paramiko does not distinguish the end of the stream from the loss of the connection; this class does.
"""

from __future__ import annotations

import io
import socket
from contextlib import suppress
from typing import IO, Any

import paramiko

from rung.jobs.model.errors import HostUnreachable
from rung.runner.ssh.transport import LOST


class UnixSocket:
    """The RemoteSocket of a channel. Like a socket, it stays open until its files are closed, too."""

    def __init__(self, host: str, channel: paramiko.Channel) -> None:
        self._host, self._channel = host, channel
        self._files = 0
        self._closed = self._ended = False

    def recv(self, size: int) -> bytes:
        data = self._channel.recv(size)
        # OpenSSH signals the end of a stream before it closes a channel; a lost connection only closes it.
        if not data and size and not self._channel.eof_received and not self._ended:
            raise HostUnreachable(f"{self._host}: {LOST}")
        return data

    def recv_into(self, buffer: Any, size: int = 0) -> int:
        view = memoryview(buffer).cast("B")
        data = self.recv(size or len(view))
        view[: len(data)] = data
        return len(data)

    def send(self, data: bytes) -> int:
        self.sendall(data)
        return len(data)

    def sendall(self, data: bytes) -> None:
        try:
            self._channel.sendall(bytes(data))
        except TimeoutError:
            raise
        except (OSError, EOFError, paramiko.SSHException):
            if self._ended or self._channel.eof_received:
                raise BrokenPipeError(f"{self._host}: the other side has closed the socket") from None
            raise HostUnreachable(f"{self._host}: {LOST}") from None

    def settimeout(self, seconds: float | None) -> None:
        self._channel.settimeout(seconds)

    def gettimeout(self) -> float | None:
        return self._channel.gettimeout()

    def shutdown(self, how: int) -> None:
        """End only writing, or everything; the latter also ends a read that waits in another thread."""
        if how == socket.SHUT_WR:
            self._channel.shutdown_write()
        else:
            self._end()

    def makefile(self, mode: str = "rb", *rest: Any, **options: Any) -> IO[bytes]:
        if mode not in ("rb", "br", "r"):
            raise ValueError("a socket of a host is read through its file, and written with sendall")
        self._files += 1
        return io.BufferedReader(_Reader(self))

    def fileno(self) -> int:
        return self._channel.fileno()

    def close(self) -> None:
        self._closed = True
        if not self._files:
            self._end()

    def _file_closed(self) -> None:
        self._files -= 1
        if self._closed:
            self.close()

    def _end(self) -> None:
        self._ended = True
        # Of a connection that is just being lost, a channel cannot be closed any more, and need not be.
        with suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()


class _Reader(io.RawIOBase):
    def __init__(self, source: UnixSocket) -> None:
        # The docker SDK finds the socket by this name when it shuts down a stream.
        self._sock = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.recv_into(buffer)

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._sock._file_closed()
