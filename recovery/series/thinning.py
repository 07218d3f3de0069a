"""Keeps the curves of a run of any length thin, without a bias: every row has the lowest and the highest value.

The first rows hold one reading each, the next as many rows two each, then four, and so on. So rows are only ever
added, their number grows with the logarithm of the length of the run, and half of the run always has at least
ROWS_PER_LEVEL of them. The same readings always make the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from rung.recovery.logs.reading import Reading, Readings
from rung.recovery.series.point import (
    QUANTITIES,
    Columns,
    Extremes,
    Numbers,
    Point,
    Row,
    columns_of,
    numbers_of,
    row_of,
    row_of_one,
    single,
    widened,
)

ROWS_PER_LEVEL = 512
# No run has more readings than this many levels take: 512 times 2 to the 48th.
MOST_LEVELS = 48
# As many points as a plot can show.
LIMIT = 500


def count_of_row(index: int) -> int:
    """Return how many readings the row at this place holds."""
    return 1 << min(index // ROWS_PER_LEVEL, MOST_LEVELS)


def readings_of(rows: int) -> int:
    """Return how many readings so many rows hold, from the first one on."""
    levels, more = divmod(rows, ROWS_PER_LEVEL)
    return sum(ROWS_PER_LEVEL << min(level, MOST_LEVELS) for level in range(levels)) + more * count_of_row(rows)


class Thinner:
    """Makes rows of readings, one after the other. `rows`: how many have been made before."""

    def __init__(self, rows: int = 0) -> None:
        self._rows, self._wanted = rows, count_of_row(rows)
        # Of the row that is not complete yet; `_wanted`: how many readings make it complete.
        self._readings = self._last_step = 0
        self._extremes: list[Extremes | None] = [None] * len(QUANTITIES)

    def add(self, step: int, numbers: Numbers) -> Row | None:
        """Take one reading; return the row that it completes, if it does."""
        self._last_step = step
        if self._wanted == 1:
            self._complete_row()
            return row_of_one(step, numbers)
        self._readings += 1
        extremes = self._extremes
        for index, value in enumerate(numbers):
            if value is None:
                continue
            found = extremes[index]
            if found is None:
                extremes[index] = single(step, value)
            # By their places: a field of a named tuple takes longer.
            elif not (found[1] <= value <= found[3] or found[3] <= value <= found[1]):
                extremes[index] = found.beyond(step, value)
        return self._completed()[0] if self._readings == self._wanted else None

    def add_many(self, steps: Sequence[int], columns: Columns) -> list[Row]:
        """Take readings of finite numbers, one column for each quantity; return the rows that they complete."""
        rows: list[Row] = []
        at = 0
        while at < len(steps):
            if self._wanted == 1:
                numbers = tuple([None if column is None else column[at] for column in columns])
                rows.append(row_of_one(steps[at], numbers))
                self._last_step, end = steps[at], at + 1
                self._complete_row()
            else:
                end = min(len(steps), at + self._wanted - self._readings)
                rows += self._add_part(
                    steps[at:end], [None if column is None else column[at:end] for column in columns]
                )
            at = end
        return rows

    def _add_part(self, steps: Sequence[int], columns: Columns) -> list[Row]:
        """Take readings of the row that is not complete yet; return it if they complete it."""
        self._last_step = steps[-1]
        self._readings += len(steps)
        extremes = self._extremes
        for index, column in enumerate(columns):
            if column is not None:
                extremes[index] = widened(extremes[index], steps, column)
        return self._completed() if self._readings == self._wanted else []

    def _completed(self) -> list[Row]:
        """Return the row that is complete now, and begin the next."""
        row = self.rest()
        self._readings, self._extremes = 0, [None] * len(QUANTITIES)
        self._complete_row()
        return [row] if row is not None else []

    def _complete_row(self) -> None:
        self._rows += 1
        if self._rows % ROWS_PER_LEVEL == 0:
            self._wanted = count_of_row(self._rows)

    def rest(self) -> Row | None:
        """Return the row that is not complete yet."""
        return row_of(self._readings, self._last_step, self._extremes) if self._readings else None


class Series:
    """The curves of one run, in bounded memory."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._done = list(rows)
        self._thinner = Thinner(len(self._done))

    def add(self, step: int, reading: Reading) -> None:
        """Take a reading of the log; one without a number for a curve adds nothing."""
        numbers = numbers_of(reading)
        row = self._thinner.add(step, numbers) if numbers is not None else None
        if row is not None:
            self._done.append(row)

    def add_many(self, readings: Readings) -> None:
        """Take readings in a row, as `add` does one by one."""
        columns = columns_of(readings)
        self._done += self._thinner.add_many(readings.steps, columns)

    @property
    def rows(self) -> list[Row]:
        rest = self._thinner.rest()
        return [*self._done, rest] if rest else list(self._done)

    def points(self, limit: int = LIMIT) -> list[Point]:
        """Return at most `limit` points, in the order they came."""
        return [point for row in thinned(self.rows, limit) for point in row.points()]


def thinned(rows: Sequence[Row], limit: int) -> list[Row]:
    """Return rows that make at most `limit` points, each of about as many readings as the others."""
    if sum(1 if row.readings == 1 else 2 for row in rows) <= limit:
        return list(rows)
    total, most = sum(row.readings for row in rows), max(1, limit // 2)
    found: list[Row] = []
    taken, place = 0, -1
    for row in rows:
        here = taken * most // total
        if here == place:
            found[-1] = found[-1].joined(row)
        else:
            found.append(row)
        place, taken = here, taken + row.readings
    return found
