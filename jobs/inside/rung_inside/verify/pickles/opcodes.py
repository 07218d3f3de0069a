"""Reads the opcodes of a pickle with their arguments, protocols 0 to 5, never beyond the end of the file."""

from __future__ import annotations

import ast
import struct
from typing import Any, Callable

from rung_inside.verify.stored.mapped_file import Window
from rung_inside.verify.stored.verdict import CORRUPT, TRUNCATED, Unfit

# Longer texts stay in the file. An array of NumPy is one; no key or name is that long.
LONGEST_KEPT = 1 << 16
# When this many bytes of texts are kept, only short ones are kept any more.
MOST_KEPT, SHORT = 1 << 28, 100
MOST_DIGITS = 4300


class LongText:
    """Replaces a text, bytes or a number that is too long to be kept."""

    def __init__(self, length: int) -> None:
        self.length = length


class Reader:
    """Reads a window from its start."""

    def __init__(self, window: Window, at: int = 0) -> None:
        self._buffer = window.buffer
        self._start, self._end = window.start, window.start + window.length
        self._at = window.start + at
        self._kept = 0

    @property
    def at(self) -> int:
        """Return the place in the window."""
        return self._at - self._start

    def byte(self) -> int:
        at = self._at
        if at >= self._end:
            raise _short()
        self._at = at + 1
        return int(self._buffer[at])

    def take(self, count: int) -> bytes:
        first = self._skip(count)
        return bytes(self._buffer[first : first + count])

    def text(self, count: int) -> Any:
        """Return so many bytes, or a LongText."""
        if count > LONGEST_KEPT or (self._kept > MOST_KEPT and count > SHORT):
            self._skip(count)
            return LongText(count)
        self._kept += count
        return self.take(count)

    def line(self) -> bytes:
        first = self._at
        end = self._buffer.find(b"\n", first, min(self._end, first + LONGEST_KEPT))
        if end < 0:
            raise _short() if self._end - first < LONGEST_KEPT else damaged()
        self._at = end + 1
        return bytes(self._buffer[first:end])

    def _skip(self, count: int) -> int:
        first = self._at
        if count < 0:
            raise damaged()
        if count > self._end - first:
            raise _short()
        self._at = first + count
        return first


def damaged(what: str = "") -> Unfit:
    return Unfit(CORRUPT, f"its pickle is damaged{f': {what}' if what else ''}")


def _short() -> Unfit:
    return Unfit(TRUNCATED, "its pickle ends too early")


def _number(form: str) -> Callable[[Reader], Any]:
    packed = struct.Struct(form)
    return lambda reader: packed.unpack(reader.take(packed.size))[0]


def _sized(form: str, convert: Callable[[bytes], Any]) -> Callable[[Reader], Any]:
    """Return a reader of a length and so many bytes."""
    length = _number(form)

    def read(reader: Reader) -> Any:
        raw = reader.text(length(reader))
        return raw if isinstance(raw, LongText) else convert(raw)

    return read


def _line(convert: Callable[[bytes], Any]) -> Callable[[Reader], Any]:
    def read(reader: Reader) -> Any:
        try:
            return convert(reader.line())
        except (ValueError, SyntaxError, OverflowError):
            raise damaged() from None

    return read


def _utf8(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise damaged() from None


def _old_text(raw: bytes) -> str:
    """Return a text of Python 2, which may be in any encoding."""
    return raw.decode("utf-8", "replace")


def _long(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def _decimal(raw: bytes) -> Any:
    if raw in (b"00", b"01"):
        return raw == b"01"  # how protocol 0 writes False and True
    raw = raw[:-1] if raw.endswith(b"L") else raw
    if len(raw) > MOST_DIGITS:
        raise ValueError("digits")
    return int(raw)


def _quoted(raw: bytes) -> str:
    """Return a text of protocol 0, which is a literal of Python."""
    if len(raw) < 2 or raw[:1] not in b"'\"" or raw[:1] != raw[-1:]:
        raise ValueError("quotes")
    return _old_text(bytes(ast.literal_eval("b" + raw.decode("ascii"))))


def _raw_unicode(raw: bytes) -> str:
    return raw.decode("raw-unicode-escape")


def _plain_name(raw: bytes) -> str:
    return raw.decode("utf-8")


_same: Callable[[bytes], Any] = bytes
# How to read the argument of every opcode that has one.
ARGUMENTS: dict[int, Callable[[Reader], Any]] = {
    ord("I"): _line(_decimal), ord("L"): _line(_decimal), ord("F"): _line(float),
    ord("J"): _number("<i"), ord("K"): _number("<B"), ord("M"): _number("<H"), ord("G"): _number(">d"),
    0x8A: _sized("<B", _long), 0x8B: _sized("<i", _long),
    ord("S"): _line(_quoted), ord("T"): _sized("<i", _old_text), ord("U"): _sized("<B", _old_text),
    ord("V"): _line(_raw_unicode), ord("X"): _sized("<I", _utf8), 0x8C: _sized("<B", _utf8), 0x8D: _sized("<Q", _utf8),
    ord("B"): _sized("<I", _same), ord("C"): _sized("<B", _same), 0x8E: _sized("<Q", _same), 0x96: _sized("<Q", _same),
    ord("p"): _line(_decimal), ord("q"): _number("<B"), ord("r"): _number("<I"),
    ord("g"): _line(_decimal), ord("h"): _number("<B"), ord("j"): _number("<I"),
    ord("c"): lambda reader: (_line(_plain_name)(reader), _line(_plain_name)(reader)),
    ord("i"): lambda reader: (_line(_plain_name)(reader), _line(_plain_name)(reader)),
    ord("P"): _line(_plain_name), 0x80: _number("<B"), 0x95: _number("<Q"),
    0x82: _number("<B"), 0x83: _number("<H"), 0x84: _number("<i"),
}  # fmt: skip
