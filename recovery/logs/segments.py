"""Splits a block of whole lines into its lines, and into the states of the bars that were redrawn on them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from typing import AnyStr

from rung.recovery.logs.lines import MAX_TEXT, text_of


class Segments:
    """Each line of a block, and each state of a bar that was redrawn on it; empty ones too.

    `begins_line`: the block before it did not end with a bar that is redrawn.
    """

    def __init__(self, block: bytes, number: int, *, begins_line: bool) -> None:
        self._block, self._begins_line = block, begins_line
        self.numbers: Sequence[int]
        self.texts: Sequence[str]
        self.sizes: Sequence[int]
        # Most blocks are lines of ASCII, and need no step of Python for each line.
        self.is_plain = len(block) <= MAX_TEXT and b"\r" not in block and block.isascii()
        if self.is_plain:
            self.texts = block.decode("ascii").split("\n")
            self.numbers, self.sizes = range(number, number + len(self.texts)), [*map(len, self.texts)]
        else:
            self.numbers, self.sizes, self.texts = zip(*split(block, number), strict=True)

    def with_places(self, places: Sequence[int]) -> set[int]:
        """Return which of them have one of these places of the block, where each counts its own end."""
        if not places:
            return set()
        ends = self._ends()
        return {bisect_left(ends, place) for place in places}

    def is_empty_line(self, index: int) -> bool:
        """Tell whether this one is a line without anything on it, not a state of a bar."""
        if self.sizes[index]:
            return False
        at = self._ends()[index]
        before = self._block[at - 1] == ord("\n") if at else self._begins_line
        return before and self._block.startswith(b"\n", at)

    def _ends(self) -> list[int]:
        """Return where each of them ends."""
        return [*accumulate(self.sizes, lambda end, size: end + 1 + size)]


def runs(templates: Sequence[str], fewest: int) -> Iterator[tuple[int, int]]:
    """Return where at least so many of these in a row begin and end that are the same, and not empty."""
    at = 0
    for template, alike in groupby(templates):
        start, at = at, at + len(list(alike))
        if template and at - start >= fewest:
            yield start, at


def split(block: bytes, number: int) -> Iterator[tuple[int, int, str]]:
    """Return the number of the line of each, its size in bytes and its text."""
    if block.isascii():
        # Control codes have been taken out of it, so that it can be shown as it is.
        for line, text in _split(block.decode("ascii"), "\n", "\r", number):
            yield line, len(text), text if len(text) <= MAX_TEXT else text[:MAX_TEXT]
        return
    for line, raw in _split(block, b"\n", b"\r", number):
        yield line, len(raw), text_of(raw)


def _split(block: AnyStr, line_end: AnyStr, redraw: AnyStr, number: int) -> Iterator[tuple[int, AnyStr]]:
    lines = block.split(line_end)
    if redraw not in block:
        yield from enumerate(lines, number)
        return
    for place, line in enumerate(lines, number):
        for piece in line.split(redraw):
            yield place, piece
