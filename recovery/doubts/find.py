"""Says what a log may show although nothing in it is acted on, for `rung explain`.

Only a part of a long log is looked at: its beginning and its end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rung.recovery.doubts.curves import judge
from rung.recovery.doubts.doubt import Doubt
from rung.recovery.doubts.series import collect
from rung.recovery.doubts.words import find_words
from rung.recovery.logs.lines import Line, LineSplitter

FIRST_BYTES, LAST_BYTES = 64 * 1024, 256 * 1024
# A sweep of the learning rate goes on until the loss explodes.
_SWEEP = re.compile(
    r"\b(?:lr|learning[ -]rate)[ _-]?(?:range|finder|find|sweep|test)\b|\blr_find|\brange test\b|\bsuggested lr\b", re.I
)


class Excerpt:
    """Keeps the beginning and the end of a log, however long it is."""

    def __init__(self) -> None:
        self._first = self._last = b""
        self._left_out = 0  # bytes between the two
        self._lines_before = 0  # line breaks before what is kept of the end

    def add(self, chunk: bytes) -> None:
        room = FIRST_BYTES - len(self._first)
        self._first += chunk[:room]
        self._last += chunk[room:] if room > 0 else chunk
        excess = max(0, len(self._last) - LAST_BYTES)
        if excess:
            self._lines_before += self._last.count(b"\n", 0, excess)
            self._left_out += excess
            self._last = self._last[excess:]

    def lines(self) -> list[Line]:
        """Return the lines that are kept, with their numbers in the log; none that was cut."""
        if not self._left_out:
            return _lines(self._first + self._last, 0)
        first, last = self._first.rpartition(b"\n")[0], self._last.partition(b"\n")[2]
        return _lines(first, 0) + _lines(last, self._first.count(b"\n") + self._lines_before + 1)


def _lines(data: bytes, before: int) -> list[Line]:
    splitter = LineSplitter()
    lines = splitter.feed(data) + splitter.flush()
    return [Line(line.number + before, line.text) for line in lines] if before else lines


def find_doubts(lines: Sequence[Line]) -> list[Doubt]:
    """Return what the lines of a log may show, at most one doubt of a kind."""
    if any(_SWEEP.search(line.text) for line in lines):
        return []
    found = judge(collect(lines))
    kinds = {doubt.kind for doubt in found}
    found += [doubt for doubt in find_words(lines) if doubt.kind not in kinds]
    return sorted(found, key=lambda doubt: doubt.line)
