"""Searches a part of a log that cannot be read in full for messages, at the speed of memory.

Every byte is searched for keywords, for values that are not finite and for the records from inside. Lines with a hit
are read with those around them, and as many after them as it takes to know what they mean. All others are left out.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

from rung.recovery.detect.detector import Detector
from rung.recovery.detect.log_tail import TAIL_LINES
from rung.recovery.detect.prefilter import Prefilter
from rung.recovery.logs.lines import MAX_RAW, Line, bare, count_lines, text_of

# Lines before a hit that are read too: whether an exception ended the training is judged by the last lines before it.
BEFORE = TAIL_LINES
# Lines after a hit, and the bytes that are read at most until it is known whether a run got past it.
AFTER = 8
MOST_AFTER = 256 * 1024
# Lines that differ only in their digits are read so often. A message that was not there before is always read.
SAME = 8
# More different lines than this are forgotten, and read again.
MOST_SHAPES = 4096

_BREAK = re.compile(rb"[\r\n]")
_DIGITS = b"0123456789"


class Skimmer:
    """Picks the lines of a skipped part that the detector must see."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._prefilter = Prefilter(values=True, records=True)
        self._shapes: dict[int, int] = {}
        # What the last lines before this part mean is found out first.
        self._lines_left, self._bytes_left = AFTER, MOST_AFTER
        # The last lines of the block before that were not read, and whether lines before them are missing.
        self._carried, self._gap = b"", False

    def lines(self, block: bytes, number: int) -> Iterator[Line]:
        """Yield the lines to read of a block of whole lines, which begins at this line; each must be fed at once."""
        if self._prefilter.needs_cleaning(block):
            block = bare(block)
        data = self._carried + block
        number -= self._carried.count(b"\n")
        at = counted = 0
        if self._reads_on:
            at = yield from self._read_on(data, 0, number)
        for hit in self._hits(block, len(self._carried)):
            start = _line_start(data, at, hit)
            if hit < at or self._is_common(data[start : _line_end(data, hit)]):
                continue
            begin, before = _lines_before(data, at, start)
            if self._gap or begin > at:
                self._detector.lines_missing()
                self._gap = False
            number += count_lines(data[counted:begin])
            counted = begin
            self._lines_left, self._bytes_left = before + 1 + AFTER, MOST_AFTER
            at = yield from self._read_on(data, begin, number)
        begin, _ = _lines_before(data, at, len(data)) if at < len(data) else (len(data), 0)
        self._carried, self._gap = data[begin:], self._gap or begin > at

    @property
    def has_read_all(self) -> bool:
        """Tell whether no line is missing between the last one that was read and here."""
        return not (self._gap or self._carried)

    @property
    def _reads_on(self) -> bool:
        return self._lines_left > 0 or (self._bytes_left > 0 and self._detector.awaits_more)

    def _read_on(self, data: bytes, at: int, number: int) -> Generator[Line, None, int]:
        """Yield lines while they are wanted; return where they end."""
        while at < len(data) and self._reads_on:
            end = _line_end(data, at)
            if end > at:
                self._lines_left -= 1
                self._bytes_left -= end - at
                yield Line(number, text_of(data[at:end]))
            number += data.startswith(b"\n", end)
            at = end + 1
        return at

    def _hits(self, block: bytes, shift: int) -> list[int]:
        places = self._prefilter.find_keywords(block)
        if self._detector.has_rules:
            places = sorted({*places, *self._rule_hits(block)})
        return [place + shift for place in places]

    def _rule_hits(self, block: bytes) -> Iterator[int]:
        at = 0
        while at < len(block):
            end = _line_end(block, at)
            if end > at and self._detector.matches_rule(block[at : min(end, at + MAX_RAW)].decode("utf-8", "replace")):
                yield at
            at = end + 1

    def _is_common(self, raw: bytes) -> bool:
        """Tell whether lines like this one were read often enough."""
        if len(self._shapes) > MOST_SHAPES:
            self._shapes.clear()
        shape = hash(raw.translate(None, _DIGITS))
        count = self._shapes[shape] = self._shapes.get(shape, 0) + 1
        return count > SAME


def _line_start(data: bytes, at: int, place: int) -> int:
    return max(data.rfind(b"\n", at, place), data.rfind(b"\r", at, place), at - 1) + 1


def _line_end(data: bytes, place: int) -> int:
    found = _BREAK.search(data, place)
    return found.start() if found else len(data)


def _lines_before(data: bytes, at: int, start: int) -> tuple[int, int]:
    """Return where the lines before a place begin that are read with it, not before `at`, and how many they are."""
    count = 0
    while count < BEFORE and start > at:
        start = _line_start(data, at, start - 1)
        count += 1
    return start, count
