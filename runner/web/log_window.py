"""Reads a window of a log by line numbers, in bounded memory, however long the log is."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rung.recovery.logs.lines import Line, LineSplitter
from rung.runner.files.log_file import CHUNK, LogFile, segment_starts

# How many lines a page shows, and how much of the log is read for it: a line may be drawn again a million times.
WINDOW_LINES = 300
WINDOW_BYTES = 8 << 20
# Longer lines are dumps of data; the file has all of it.
MOST_CHARACTERS = 2000
KEPT_INDEXES = 8


@dataclass(frozen=True)
class LogLine:
    """A line for the page; `fault`: it is the one that shows the fault."""

    number: int
    text: str
    fault: bool = False
    cut: int = 0


@dataclass(frozen=True)
class Window:
    """Some lines of a log, and how many it has."""

    lines: tuple[LogLine, ...]
    total: int

    @property
    def first(self) -> int:
        return self.lines[0].number if self.lines else 0

    @property
    def last(self) -> int:
        return self.lines[-1].number if self.lines else 0


@dataclass
class LineIndex:
    """Where lines begin in a log, roughly: how many lines end before each place that was read up to."""

    path: Path
    beginning: tuple[int, ...]
    _ended: list[int] = field(default_factory=lambda: [0])
    _places: list[int] = field(default_factory=lambda: [0])
    _in_line: bool = False

    @property
    def total(self) -> int:
        return self._ended[-1] + self._in_line

    def extend(self) -> None:
        """Read what was added to the log."""
        log = LogFile(self.path, self._places[-1])
        while chunk := log.read(CHUNK):
            self._in_line = not chunk.endswith(b"\n")
            ended = self._ended[-1] + chunk.count(b"\n")
            # A log that grows in small pieces needs no place for each of them.
            if len(self._places) > 1 and log.offset - self._places[-2] < CHUNK:
                self._ended[-1], self._places[-1] = ended, log.offset
            else:
                self._ended.append(ended)
                self._places.append(log.offset)

    def place_before(self, line: int) -> tuple[int, int]:
        """Return a place from which this line can be read whole, and how many lines end before that place."""
        # The line that contains the place itself is not whole, unless it is the beginning.
        index = max(0, bisect_left(self._ended, line - 1) - 1)
        return self._places[index], self._ended[index]


class LogIndexes:
    """Keeps the indexes of the logs that were looked at last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, LineIndex] = OrderedDict()
        # A first look at a long log reads all of it; several at the same time would only slow each other down.
        self._lock = threading.Lock()

    def window(self, path: Path, line: int | None, fault: int | None) -> Window:
        """Return the lines around this one; None: the last ones."""
        with self._lock:
            index = self._index(path)
            index.extend()
            self._kept.move_to_end(path)
            if len(self._kept) > KEPT_INDEXES:
                self._kept.popitem(last=False)
            total = index.total
            first = total - WINDOW_LINES + 1 if line is None else line - WINDOW_LINES // 2
            first = max(1, min(first, total - WINDOW_LINES + 1))
            place, before = index.place_before(first)
        return Window(_read(path, place, before, first, fault), total)

    def _index(self, path: Path) -> LineIndex:
        beginning = tuple(segment_starts(path)[:2])
        kept = self._kept.get(path)
        # A log that grew too long has lost its middle: all numbers after it have changed.
        if kept is None or (len(kept.beginning) > 1 and kept.beginning != beginning):
            kept = self._kept[path] = LineIndex(path, beginning)
        kept.beginning = beginning
        return kept


def _read(path: Path, place: int, before: int, first: int, fault: int | None) -> tuple[LogLine, ...]:
    splitter, log, left = LineSplitter(), LogFile(path, place), WINDOW_BYTES
    # Of a line that was drawn again and again its last state that is not blank is shown.
    shown: dict[int, str] = {}
    last = first + WINDOW_LINES - 1
    while left > 0 and (chunk := log.read(min(left, CHUNK))):
        left -= len(chunk)
        found = splitter.feed(chunk)
        _take(found, before, shown, first, last)
        if found and found[-1].number + before > last:
            break
    else:
        _take(splitter.flush(), before, shown, first, last)
    return tuple(_log_line(number, text, fault) for number, text in sorted(shown.items()))


def _take(lines: Sequence[Line], before: int, shown: dict[int, str], first: int, last: int) -> None:
    for line in lines:
        number = line.number + before
        if first <= number <= last and (number not in shown or not line.is_blank):
            shown[number] = line.text


def _log_line(number: int, text: str, fault: int | None) -> LogLine:
    return LogLine(number, text[:MOST_CHARACTERS], number == fault, max(0, len(text) - MOST_CHARACTERS))
