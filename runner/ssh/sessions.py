"""Limits the open sessions of a connection, and runs one command in a session.

sshd allows ten sessions per connection by default (MaxSessions) and refuses more. We cannot know the limit, so a
refused session waits and is requested again.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import paramiko
from paramiko.common import cMSG_CHANNEL_REQUEST

from rung.jobs.model.errors import EngineError, HostUnreachable
from rung.runner.seams.remote import OUTPUT_BYTES, CommandResult, command_line
from rung.runner.ssh.transport import LOST, ChannelRefused, Transport

# sshd's default is 10, and it frees a session only some time after we have closed it.
MOST_SESSIONS = 8
OPEN_SECONDS = 10.0
ROOM_SECONDS = 0.25
CHUNK_BYTES = 1 << 15
# Between two checks: of a channel that signals when there is something to read, and of one that waits to write.
READ_SECONDS = 0.5
WRITE_SECONDS = 0.01


class Sessions:
    """The sessions of one connection; when all are taken, a caller waits for one to end."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = 0

    @contextmanager
    def session(self, transport: Transport, deadline: float) -> Iterator[paramiko.Channel]:
        channel = self._start(transport, deadline)
        try:
            yield channel
        finally:
            channel.close()
            self._leave()

    def _start(self, transport: Transport, deadline: float) -> paramiko.Channel:
        while True:
            self._enter(deadline)
            try:
                return transport.start_session(OPEN_SECONDS)
            except ChannelRefused as refused:
                self._wait_for_room(refused, deadline)
            except BaseException:
                self._leave()
                raise

    def _enter(self, deadline: float) -> None:
        with self._changed:
            while self._open >= MOST_SESSIONS:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise EngineError(f"all {MOST_SESSIONS} sessions are taken, and none became free in time")
            self._open += 1

    def _leave(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _wait_for_room(self, refused: ChannelRefused, deadline: float) -> None:
        """Wait a moment, or until one of our sessions ends; a command that timed out still holds its session."""
        with self._changed:
            # Nobody is notified: a session that the host refuses is not free for another caller.
            self._open -= 1
            if time.monotonic() > deadline:
                raise EngineError(f"the host opens no further session ({refused}); raise MaxSessions there") from None
            self._changed.wait(ROOM_SECONDS)


def run_command(channel: paramiko.Channel, argv: Sequence[str], stdin: bytes | None, deadline: float) -> CommandResult:
    """Run a command in a new session until it ends; write and read in turn so that neither side blocks."""
    request(channel, "exec", with_input(command_line(argv), len(stdin or b"")), deadline)
    exchange = _Exchange(channel, memoryview(stdin or b""))
    while exchange.advance():
        if time.monotonic() > deadline:
            raise EngineError(f"{argv[0]}: took too long; it may still be running there")
    # The output may be closed long before the command ends.
    channel.status_event.wait(max(0.0, deadline - time.monotonic()))
    if not channel.eof_received:
        raise HostUnreachable(LOST)
    if not channel.exit_status_ready():
        raise EngineError(f"{argv[0]}: took too long; it may still be running there")
    return CommandResult(channel.exit_status, bytes(exchange.out), bytes(exchange.err))


def with_input(line: bytes, size: int) -> bytes:
    """Return a command line whose command finds the end of its input by itself.

    We never send the end of the input: a command may end before it is sent. The host then gives the number of its
    channel to the next session, whose input would end before it began, and its command would wait for ever.
    """
    return b"head -c %d | %b" % (size, line) if size else b"exec %b </dev/null" % line


def request(channel: paramiko.Channel, kind: str, what: bytes, deadline: float) -> None:
    """Request a command or a subsystem in a session. paramiko's own request has no timeout."""
    inner: Any = channel
    message = paramiko.Message()
    message.add_byte(cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string(kind)
    message.add_boolean(True)
    message.add_string(what)
    inner._event_pending()
    inner.transport._send_user_message(message)
    if not channel.event.wait(max(0.0, deadline - time.monotonic())):
        raise EngineError("the session did not start in time")
    if not channel.event_ready:
        raise paramiko.SSHException("the session was closed before it started")


class _Exchange:
    """The input that a command still needs, and the output so far."""

    def __init__(self, channel: paramiko.Channel, stdin: memoryview) -> None:
        self._channel, self._stdin = channel, stdin
        self.out, self.err = bytearray(), bytearray()
        self._readable = select.poll()
        self._readable.register(channel.fileno(), select.POLLIN)
        self._write()

    def advance(self) -> bool:
        """Read and write what is possible now; return whether there is more to come."""
        channel = self._channel
        # Checked first: what came before the end is then read below.
        ended = bool(channel.eof_received) or channel.closed
        moved = self._read() | self._write()
        if not moved and not ended:
            wait = WRITE_SECONDS if self._stdin else READ_SECONDS
            self._readable.poll(wait * 1000)
        return moved or not ended

    def _read(self) -> bool:
        channel, moved = self._channel, False
        while channel.recv_ready():
            _keep(self.out, channel.recv(CHUNK_BYTES))
            moved = True
        while channel.recv_stderr_ready():
            _keep(self.err, channel.recv_stderr(CHUNK_BYTES))
            moved = True
        return moved

    def _write(self) -> bool:
        sent = 0
        while self._stdin and self._channel.send_ready():
            sent = self._send(bytes(self._stdin[:CHUNK_BYTES]))
            self._stdin = self._stdin[sent:]
            if self._channel.recv_ready() or not sent:
                break
        return bool(sent)

    def _send(self, data: bytes) -> int:
        try:
            return self._channel.send(data)
        except OSError:
            return 0  # the command or the connection has ended; what was received shows which


def _keep(kept: bytearray, new: bytes) -> None:
    kept += new[: OUTPUT_BYTES - len(kept)]
