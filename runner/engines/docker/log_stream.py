"""Parses an engine's log stream as it arrives: frames and entries. Buffers little; many streams wait in one place.

An entry is a line, or a piece of a line longer than 16 KiB; each has its own time.
"""

from __future__ import annotations

import calendar
import os
import re
import select
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from rung.jobs.model.errors import HostUnreachable
from rung.jobs.model.terminal_text import clean
from rung.runner.hosts.http_exchange import READ_BYTES, AnswerDamaged, Body, Limits, body_pieces
from rung.runner.seams.remote import RemoteSocket

# Reads of one log before the others have their turn.
READS = 8
# The engine cuts at 16 KiB; anything much larger is not a frame.
MAX_FRAME = 1 << 20
# The first byte of a frame that is an error message of the engine.
ERROR = 3
Owner = TypeVar("Owner")
TIME = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z ")


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece of the log, and when the engine received it, in nanoseconds."""

    at: int
    piece: bytes


class Frames:
    """Turns a body into entries. A frame is eight bytes, the last four of them its size, then time, space and text."""

    def __init__(self) -> None:
        self._raw = bytearray()
        # The engine's error message when it cannot read its own file; entries before it are good.
        self.damage = ""

    def feed(self, data: bytes) -> list[Entry]:
        """Return the entries that this data completes; none after damage."""
        entries: list[Entry] = []
        if self.damage:
            return entries
        self._raw += data
        at = 0
        while len(self._raw) - at >= 8:
            end = at + 8 + int.from_bytes(self._raw[at + 4 : at + 8], "big")
            if end - at > MAX_FRAME:
                self.damage = "the log is not from an engine"
                break
            if len(self._raw) < end:
                break
            frame = bytes(self._raw[at + 8 : end])
            if self._raw[at] == ERROR:
                self.damage = clean(frame.decode("utf-8", "replace"))[:500] or "an error without a text"
                break
            try:
                entries.append(entry(frame))
            except AnswerDamaged as error:
                self.damage = str(error)
                break
            at = end
        del self._raw[:at]
        return entries


def entry(frame: bytes) -> Entry:
    """Return the entry in a frame."""
    found = TIME.match(frame)
    if found is None:
        raise AnswerDamaged("a line of the log has no time")
    year, month, day, hour, minute, second = (int(found[number]) for number in range(1, 7))
    try:
        whole = calendar.timegm((year, month, day, hour, minute, second))
    except ValueError:
        raise AnswerDamaged("a line of the log has a time that does not exist") from None
    return Entry(whole * 10**9 + int((found[7] or b"0").ljust(9, b"0")), frame[found.end() :])


def read_output(socket: RemoteSocket, size: int, limits: Limits) -> bytes:
    """Return the beginning of a log that no longer grows; waits for it."""
    body, frames, kept = Body(), Frames(), bytearray()
    for piece in body_pieces(socket, body, limits):
        if body.status not in (None, 200):
            raise AnswerDamaged(f"no output: {clean(piece[:500].decode('utf-8', 'replace'))}")
        for each in frames.feed(piece):
            kept += each.piece[: size - len(kept)]
        if frames.damage:
            raise AnswerDamaged(frames.damage)
        if len(kept) >= size:
            break
    return bytes(kept)


class LogStream:
    """The log of one container while it is read."""

    def __init__(self, socket: RemoteSocket) -> None:
        socket.settimeout(0.0)
        self._socket = socket
        self._body, self._frames = Body(), Frames()
        self._refusal = bytearray()
        self.fileno: int = getattr(socket, "fileno")()  # noqa: B009

    @property
    def damage(self) -> str:
        """Return why the log cannot be read further; what was read before is good."""
        return self._frames.damage

    @property
    def ended(self) -> bool:
        """Tell whether the engine has marked the end of the log; the end of the connection alone proves nothing."""
        return self._body.ended

    def read(self) -> list[Entry]:
        """Return the entries that have arrived, without waiting; raise HostUnreachable when the stream broke off."""
        entries: list[Entry] = []
        for _ in range(READS):
            try:
                data = self._socket.recv(READ_BYTES)
                entries += self._take(data)
            except TimeoutError:
                break
            except AnswerDamaged as error:
                self._frames.damage = str(error)
            if self.ended or self.damage:
                break
        return entries

    def _take(self, data: bytes) -> list[Entry]:
        body = self._body.feed(data) if data else b""
        if not data:
            self._body.close()
        if self._body.status not in (None, 200):
            self._refuse(body, ended=not data or self.ended)
            return []
        if not data and not self.ended:
            raise HostUnreachable("the engine broke off the log")
        return self._frames.feed(body)

    def _refuse(self, body: bytes, *, ended: bool) -> None:
        self._refusal += body[: 1000 - len(self._refusal)]
        if ended:
            raise AnswerDamaged(f"no log: {clean(self._refusal.decode('utf-8', 'replace'))}")

    def close(self) -> None:
        self._socket.close()


class StreamPoll(Generic[Owner]):
    """Waits until one of many streams has data. Everything but `wake` serves one thread."""

    def __init__(self) -> None:
        self._owners: dict[int, Owner] = {}
        self._poll = select.poll()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wake_read, select.POLLIN)

    def wake(self) -> None:
        """End the wait; may be called from any thread."""
        with suppress(OSError):
            os.write(self._wake_write, b".")

    def owners(self) -> list[Owner]:
        return list(self._owners.values())

    def add(self, stream: LogStream, owner: Owner) -> None:
        self._owners[stream.fileno] = owner
        self._poll.register(stream.fileno, select.POLLIN)

    def remove(self, stream: LogStream) -> None:
        self._poll.unregister(stream.fileno)
        del self._owners[stream.fileno]

    def wait(self, seconds: float) -> list[Owner]:
        """Return the owners of the streams with data, as soon as there is one."""
        ready = [number for number, _ in self._poll.poll(seconds * 1000)]
        if self._wake_read in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        return [self._owners[number] for number in ready if number in self._owners]
