"""Parses an engine's log stream as it arrives: HTTP, chunks, frames, entries. Never waits, and buffers little.

An entry is a line, or a piece of a line longer than 16 KiB; each has its own time.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rung.jobs.model.errors import EngineError, HostUnreachable
from rung.jobs.model.terminal_text import clean
from rung.runner.seams.remote import RemoteSocket

READ_BYTES = 1 << 16
# Reads of one log before the others have their turn.
READS = 8
MAX_HEAD = 1 << 16
# The engine cuts at 16 KiB; anything much larger is not a frame.
MAX_FRAME = 1 << 20
# The first byte of a frame that is an error message of the engine.
ERROR = 3
TIME = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z ")


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece of the log, and when the engine received it, in nanoseconds."""

    at: int
    piece: bytes


class LogDamaged(EngineError):
    """The engine cannot read the rest of the log, or sends something that is not a log."""


class Body:
    """Extracts the body from the bytes of an HTTP answer, chunked or not."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._chunked = False
        # Bytes left of the present chunk; None: its size comes next.
        self._left: int | None = None
        self.status: int | None = None
        # True when the engine has marked the end of the body.
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        self._raw += data
        if self.status is None and not self._head():
            return b""
        if self._chunked:
            return b"".join(self._chunks())
        body, self._raw = bytes(self._raw), bytearray()
        return body

    def close(self) -> None:
        """Handle the end of the connection, which ends a body without chunks."""
        self.ended = self.ended or (self.status is not None and not self._chunked)

    def _head(self) -> bool:
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            if len(self._raw) > MAX_HEAD:
                raise LogDamaged("the answer is not from an engine")
            return False
        first, *fields = bytes(self._raw[:end]).split(b"\r\n")
        try:
            self.status = int(first.split()[1])
        except (IndexError, ValueError):
            raise LogDamaged("the answer is not from an engine") from None
        self._chunked = any(field.lower().replace(b" ", b"") == b"transfer-encoding:chunked" for field in fields)
        del self._raw[: end + 4]
        return True

    def _chunks(self) -> Iterator[bytes]:
        while not self.ended:
            if self._left is None:
                end = self._raw.find(b"\r\n")
                if end < 0:
                    return
                try:
                    self._left = int(bytes(self._raw[:end]).partition(b";")[0], 16)
                except ValueError:
                    raise LogDamaged("the answer is not from an engine") from None
                del self._raw[: end + 2]
                if self._left == 0:
                    self.ended = True
                    return
            # Passed on before the chunk is complete, so that a large one is not buffered.
            if self._left:
                taken = bytes(self._raw[: self._left])
                del self._raw[: len(taken)]
                self._left -= len(taken)
                yield taken
            if self._left or len(self._raw) < 2:
                return
            del self._raw[:2]
            self._left = None


class Frames:
    """Turns a body into entries. A frame is eight bytes, the last four of them its size, then time, space and text."""

    def __init__(self) -> None:
        self._raw = bytearray()
        # The engine's error message when it cannot read its own file; entries before it are good.
        self.damage = ""

    def feed(self, data: bytes) -> list[Entry]:
        if self.damage:
            raise LogDamaged(self.damage)
        self._raw += data
        entries, at = [], 0
        while len(self._raw) - at >= 8:
            size = int.from_bytes(self._raw[at + 4 : at + 8], "big")
            if size > MAX_FRAME:
                raise LogDamaged("the log is not from an engine")
            if len(self._raw) - at < 8 + size:
                break
            if self._raw[at] == ERROR:
                self.damage = clean(bytes(self._raw[at + 8 : at + 8 + size]).decode("utf-8", "replace"))[:500]
                break
            entries.append(entry(bytes(self._raw[at + 8 : at + 8 + size])))
            at += 8 + size
        del self._raw[:at]
        return entries


def entry(frame: bytes) -> Entry:
    found = TIME.match(frame)
    if found is None:
        raise LogDamaged("a line of the log has no time")
    year, month, day, hour, minute, second = (int(found[number]) for number in range(1, 7))
    whole = calendar.timegm((year, month, day, hour, minute, second))
    return Entry(whole * 10**9 + int((found[7] or b"0").ljust(9, b"0")), frame[found.end() :])


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
        """Return the engine's error message about a log that it cannot read further."""
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
            except TimeoutError:
                break
            body = self._body.feed(data) if data else b""
            if self._body.status not in (None, 200):
                self._refuse(body, ended=not data or self._body.ended)
            else:
                entries += self._frames.feed(body)
            if not data:
                self._body.close()
                if not self.ended:
                    raise HostUnreachable("the engine broke off the log")
            if self.ended or self._frames.damage:
                break
        return entries

    def _refuse(self, body: bytes, *, ended: bool) -> None:
        self._refusal += body[: 1000 - len(self._refusal)]
        if ended:
            raise LogDamaged(f"no log: {clean(self._refusal.decode('utf-8', 'replace'))}")

    def close(self) -> None:
        self._socket.close()
