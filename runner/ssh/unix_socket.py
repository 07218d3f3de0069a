"""Wraps a channel to a UNIX socket on a host, so that it can be used like a socket.

paramiko does not distinguish the end of the stream from the loss of the connection; this class does.
"""

from __future__ import annotations

import socket
from contextlib import suppress

import paramiko

from rung.jobs.model.errors import HostUnreachable
from rung.runner.ssh.transport import LOST


class UnixSocket:
    """The RemoteSocket of a channel."""

    def __init__(self, host: str, channel: paramiko.Channel) -> None:
        self._host, self._channel = host, channel
        self._ended = False

    def recv(self, size: int) -> bytes:
        data = self._channel.recv(size)
        # OpenSSH signals the end of a stream before it closes a channel; a lost connection only closes it.
        if not data and size and not self._channel.eof_received and not self._ended:
            raise HostUnreachable(f"{self._host}: {LOST}")
        return data

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

    def shutdown(self, how: int) -> None:
        """End only writing, or everything; the latter also ends a read that waits in another thread."""
        if how == socket.SHUT_WR:
            self._channel.shutdown_write()
        else:
            self.close()

    def fileno(self) -> int:
        return self._channel.fileno()

    def close(self) -> None:
        self._ended = True
        # Of a connection that is just being lost, a channel cannot be closed any more, and need not be.
        with suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()
