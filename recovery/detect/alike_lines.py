"""Takes lines in a row that differ only in their numbers all at once, as long as none of them brings anything new.

It leaves each part of the state as if it had been given the numbers of one line after the other. Where the lines, or
what came before them, may show more than a training that goes on as before, it takes none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rung.recovery.detect.messages import Followed
from rung.recovery.logs.line_reader import LineReader
from rung.recovery.logs.lines import Line
from rung.recovery.logs.reading import Reading, Readings
from rung.recovery.shapes.recall import KnownLines
from rung.recovery.unread.numbers import UnreadNumbers

Take = Callable[[Readings], None]


class AlikeLines:
    """Takes the lines of one log. `take` is given their readings, with the steps of the whole run."""

    def __init__(
        self, followed: Followed, known: KnownLines, reader: LineReader, unread: UnreadNumbers, take: Take | None
    ) -> None:
        self._log, self._known, self._take = followed, known, take
        self._reader, self._unread = reader, unread

    def templates(self, block: bytes) -> list[str]:
        """Return what each line of a block of ASCII has in common with those like it; "": it must be fed by itself."""
        return self._known.templates(block)

    def feed(self, number: int, texts: Sequence[str]) -> int:
        """Take lines of one template from this number on; return how many are taken."""
        readings = self._quiet_readings(texts)
        count = self._log.numbers.take_quiet(readings) if readings is not None else 0
        if readings is None or not count:
            return 0
        log, readings = self._log, readings.up_to(count)
        self._known.recalled += count
        log.tail.remember_all(number, texts[:count])
        log.builder.line = log.builder.number_line = Line(number + count - 1, texts[count - 1])
        log.builder.step = readings.steps[-1]
        log.progress.take(readings)
        if self._take is not None:
            self._take(readings)
        return count

    def _quiet_readings(self, texts: Sequence[str]) -> Readings | None:
        """Return the readings of lines; None where they, or the lines before them, may show anything."""
        log = self._log
        if log.candidates.by_kind or log.last_exception.fault is not None or log.tail.unknown_exception:
            return None
        readings = self._known.read_alike(texts) if self._unread.adds_nothing else None
        if readings is None or not (readings.first.is_record or self._reader.reads_each_alone):
            return None
        steps = log.progress.steps_of(readings)
        if steps is None:
            return None
        readings = readings._replace(steps=steps)
        return readings if log.numbers.is_quiet(readings) else None


def give_each(take: Callable[[int, Reading], None]) -> Take:
    """Return a function that is given many readings, and gives them one by one."""

    def give(readings: Readings) -> None:
        for step, row in zip(readings.steps, readings.rows, strict=True):
            take(step, readings.read(row))

    return give
