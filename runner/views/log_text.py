"""Reads the log of an attempt for a person: all of it or its end, and of a progress bar only the last refresh."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rung.recovery.logs.lines import Line, LineSplitter
from rung.runner.files.log_file import CHUNK, LogFile
from rung.runner.files.log_writer import log_length

# How much of the end of a log is read for its last lines, before all of it is. The files that hold the last 64 MiB are
# never removed from a log that grew too long (log_file.py).
WINDOWS = (1 << 20, 8 << 20, 64 << 20)


@dataclass
class LastRefresh:
    """Keeps of a line that was drawn again and again its last state that is not blank."""

    _held: Line | None = None
    _shown: bool = True

    def feed(self, lines: Iterable[Line]) -> Iterator[str]:
        """Yield the lines that are over; the last one may still be drawn again and is held."""
        for line in lines:
            again = self._held is not None and self._held.number == line.number
            if again and line.is_blank:
                continue
            if not again:
                yield from self.show_held()
            self._held, self._shown = line, False

    def show_held(self) -> Iterator[str]:
        """Yield the held line as it is now, unless it was shown in this state."""
        if self._held is not None and not self._shown:
            self._shown = True
            yield self._held.text

    @property
    def held_number(self) -> int:
        """Return the number of the line that is held; 0: there is none."""
        return self._held.number if self._held is not None else 0


def log_lines(path: Path, tail: int | None = None) -> Iterator[str]:
    """Yield every line of a log in bounded memory, or only the last ones."""
    lines = _lines_from(path, tail_start(path, tail) if tail else 0)
    yield from lines if tail is None else deque(lines, maxlen=tail)


def tail_start(path: Path, count: int) -> int:
    """Return a place in a log after which at least so many whole lines begin; 0 for a log that has no more of them."""
    for window in WINDOWS:
        start = _length(path) - window
        # The first line begins before this place.
        if start > 0 and sum(1 for _ in _lines_from(path, start)) > count:
            return start
    return 0


def _lines_from(path: Path, start: int) -> Iterator[str]:
    splitter, log, refresh = LineSplitter(), LogFile(path, start), LastRefresh()
    while chunk := log.read(CHUNK):
        yield from refresh.feed(splitter.feed(chunk))
    yield from refresh.feed(splitter.flush())
    yield from refresh.show_held()


def _length(path: Path) -> int:
    try:
        return log_length(path)
    except OSError:
        # There is nothing yet; reading it says what is wrong.
        return 0


class NewLines:
    """Reads a log that is still written. A bar that goes on is shown again from time to time."""

    REFRESH_SECONDS = 10.0

    def __init__(self, path: Path, start: int = 0) -> None:
        self._log, self._splitter, self._refresh = LogFile(path, start), LineSplitter(), LastRefresh()
        self._number, self._shown_at = 0, 0.0

    def read(self, now: float, *, ended: bool) -> Iterator[str]:
        """Yield what is new; `ended`: nothing more comes."""
        while chunk := self._log.read(CHUNK):
            yield from self._refresh.feed(self._splitter.feed(chunk))
        if ended:
            yield from self._refresh.feed(self._splitter.flush())
        # Whether a line will be drawn again is not known, so its first state is shown at once.
        is_new = self._refresh.held_number != self._number
        if ended or is_new or now - self._shown_at >= self.REFRESH_SECONDS:
            self._number, self._shown_at = self._refresh.held_number, now
            yield from self._refresh.show_held()
