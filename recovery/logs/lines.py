"""Splits raw log bytes into clean, numbered lines.

A `Line` is safe to show on a terminal and not longer than `MAX_TEXT`, whatever the bytes are. The lines do not depend
on how the bytes were split into chunks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rung.jobs.model.terminal_text import BLANK, ESCAPE, HIDDEN, clean

# Enough for the longest message of a traceback or a wide table row; a longer line is a dump of data.
MAX_TEXT = 64 * 1024
# Bytes kept of an unfinished line: MAX_TEXT characters at four bytes each, the longest that UTF-8 needs.
MAX_RAW = 4 * MAX_TEXT

_HIDDEN_BUT_BREAKS = re.compile(rf"(?![\r\n]){HIDDEN.pattern}")
# Raw bytes of which `clean` removes something: control codes (all but line breaks), and hidden characters in UTF-8.
CONTROLS = bytes(code for code in (*range(32), 127) if code not in b"\r\n")
_HIDDEN_CODES = (
    *(*range(0x80, 0xA1), 0xAD, *range(0x600, 0x606), 0x61C, 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x1680, 0x180E),
    *(*range(0x2000, 0x2010), *range(0x2028, 0x2030), *range(0x205F, 0x2070), 0x3000, 0xFEFF, *range(0xFFF9, 0xFFFC)),
    *(0x110BD, 0x110CD, *range(0x13430, 0x13440), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B)),
    *range(0xE0000, 0xE0080),
)
HIDDEN_IN_UTF8 = tuple(chr(code).encode() for code in _HIDDEN_CODES)
_TOO_LONG = re.compile(rb"(?<![^\r\n])([^\r\n]{%d})[^\r\n]+" % MAX_RAW)


class Line(NamedTuple):
    """One line of a log, or one state of a progress bar that was redrawn on it."""

    number: int
    text: str

    @property
    def is_blank(self) -> bool:
        return not self.text.strip()


def bare(block: bytes) -> bytes:
    """Return whole lines without what `clean` removes, each cut to `MAX_RAW` as `LineSplitter` does."""
    if len(block) > MAX_RAW:
        block = _TOO_LONG.sub(rb"\1", block)
    text = BLANK.sub(" ", ESCAPE.sub("", block.decode("utf-8", "replace")))
    return _HIDDEN_BUT_BREAKS.sub("", text).encode("utf-8", "replace")


def count_lines(block: bytes) -> int:
    """Return how many line ends a block has.

    `bytes.count` looks at one byte after the other until Python 3.12; `replace` searches many at once, and copies.
    """
    return len(block) - len(block.replace(b"\n", b""))


def text_of(raw: bytes) -> str:
    """Return a raw line as text that is safe to show, of bounded length."""
    return clean(raw[:MAX_RAW].decode("utf-8", "replace"))[:MAX_TEXT]


class LineSplitter:
    """Splits chunks of bytes into lines, and keeps at most one unfinished line of bounded size."""

    def __init__(self) -> None:
        self._number = 1
        self._held = b""
        # True after a carriage return: the newline of a CR LF does not add an empty line.
        self._returned = False

    def feed(self, chunk: bytes) -> list[Line]:
        """Return the lines that this chunk completes."""
        lines: list[Line] = []
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._take(piece, lines)
            self._end_line(lines)
        if rest:
            self._take(rest, lines)
        return lines

    def flush(self) -> list[Line]:
        """Return the unfinished line, if any."""
        lines: list[Line] = []
        if self._held:
            self._emit(lines)
        return lines

    def _take(self, piece: bytes, lines: list[Line]) -> None:
        if b"\r" not in piece:
            self._hold(piece)
            return
        *redrawn, last = piece.split(b"\r")
        for part in redrawn:
            self._hold(part)
            if self._held:
                self._emit(lines)
            self._returned = True
        self._hold(last)

    def _hold(self, piece: bytes) -> None:
        room = MAX_RAW - len(self._held)
        if piece and room > 0:
            self._held += piece[:room]

    def _end_line(self, lines: list[Line]) -> None:
        if self._held or not self._returned:
            self._emit(lines)
        self._number += 1
        self._returned = False

    def _emit(self, lines: list[Line]) -> None:
        lines.append(Line(self._number, text_of(self._held)))
        self._held = b""
