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
# Raw bytes of which `clean` removes something: control codes, and hidden characters in UTF-8.
ODD_BYTES = (
    rb"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\xa0\xad]|\xd8[\x80-\x85\x9c]|\xdb\x9d|\xdc\x8f|\xe1(?:\xa0\x8e|\x9a\x80)"
    rb"|\xe2\x80[\x80-\x8f\xa8-\xaf]|\xe2\x81[\x9f-\xaf]|\xe3\x80\x80|\xef\xbb\xbf|\xef\xbf[\xb9-\xbb]|\xf3\xa0[\x80\x81]"
)
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
