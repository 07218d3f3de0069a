"""Defines what the curves of a run are made of: a `Point`, and a `Row` with the extremes of several readings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rung.recovery.logs.reading import Reading, Readings

# What a run has curves of, in the order of the fields of a row.
QUANTITIES = ("loss", "grad_norm", "scale", "lr", "speed")

Numbers = tuple[float | None, ...]
# The numbers of readings in a row, by quantity; None: they have no such number.
Columns = Sequence[Sequence[float] | None]
# What `_make` of a named tuple does, without a call: two are made of most readings.
_new = tuple.__new__


class Point(NamedTuple):
    """The numbers at one step. `at`: when Rung read them; None where it came to them later."""

    step: int
    loss: float | None = None
    grad_norm: float | None = None
    lr: float | None = None
    scale: float | None = None
    # Steps a second.
    speed: float | None = None
    at: float | None = None


class Extremes(NamedTuple):
    """The lowest and the highest of some values, in the order they came, each with its step.

    A value that is not finite counts as the highest.
    """

    first_step: int
    first: float
    last_step: int
    last: float

    @property
    def is_single(self) -> bool:
        """Tell whether both are the same value."""
        same = self.first == self.last or not (math.isfinite(self.first) or math.isfinite(self.last))
        return same and self.first_step == self.last_step

    def values(self) -> list[tuple[int, float]]:
        """Return what a curve shows of them."""
        first = (self.first_step, self.first)
        return [first] if self.is_single else [first, (self.last_step, self.last)]

    def beyond(self, step: int, value: float) -> Extremes:
        """Return the extremes of these values and a later one that is beyond them."""
        first, last = self.first, self.last
        if not (math.isfinite(value) and math.isfinite(first) and math.isfinite(last)):
            return self.joined(Extremes(step, value, step, value))
        # The one at the other end stays.
        if (first <= last) == (value > last):
            return Extremes(self.first_step, first, step, value)
        return Extremes(self.last_step, last, step, value)

    def joined(self, later: Extremes) -> Extremes:
        """Return the extremes of these values and later ones."""
        found = [self[:2], self[2:], later[:2], later[2:]]
        low = min(range(4), key=lambda index: (_rank(found[index][1]), index))
        high = max(range(4), key=lambda index: (_rank(found[index][1]), -index))
        return Extremes(*found[min(low, high)], *found[max(low, high)])


def _rank(value: float) -> float:
    return value if math.isfinite(value) else math.inf


class Row(NamedTuple):
    """The extremes of so many readings in a row, up to this step."""

    readings: int
    last_step: int
    loss: Extremes | None = None
    grad_norm: Extremes | None = None
    scale: Extremes | None = None
    lr: Extremes | None = None
    speed: Extremes | None = None
    at: float | None = None

    @property
    def extremes(self) -> tuple[Extremes | None, ...]:
        return self[2:7]

    def joined(self, later: Row) -> Row:
        """Return one row with the readings of both."""
        pairs = [_joined(one, other) for one, other in zip(self.extremes, later.extremes, strict=True)]
        return row_of(self.readings + later.readings, later.last_step, pairs, later.at)

    def points(self) -> list[Point]:
        """Return one point for a single reading and two for more, at the steps of the loss, if there is one."""
        main = next((each for each in self.extremes if each is not None), None)
        if main is None:
            return []
        first = Point(main.first_step, **self._values(last=False), at=self.at)
        if all(each is None or each.is_single for each in self.extremes):
            return [first]
        return [first, Point(main.last_step, **self._values(last=True), at=self.at)]

    def _values(self, *, last: bool) -> dict[str, float | None]:
        pairs = zip(QUANTITIES, self.extremes, strict=True)
        return {name: each and (each.last if last else each.first) for name, each in pairs}


def row_of(readings: int, last_step: int, extremes: Sequence[Extremes | None], at: float | None = None) -> Row:
    """Return a row with these extremes, in the order of QUANTITIES."""
    loss, grad_norm, scale, lr, speed = extremes
    return _new(Row, (readings, last_step, loss, grad_norm, scale, lr, speed, at))


def row_of_one(step: int, numbers: Numbers) -> Row:
    """Return the row of a single reading."""
    found = [None if value is None else _new(Extremes, (step, value, step, value)) for value in numbers]
    return _new(Row, (1, step, *found, None))


def single(step: int, value: float) -> Extremes:
    """Return the extremes of one value."""
    return _new(Extremes, (step, value, step, value))


def widened(found: Extremes | None, steps: Sequence[int], values: Sequence[float]) -> Extremes:
    """Return the extremes of values so far and of these later ones, which are finite."""
    low, high = min(values), max(values)
    if found is None:
        if low == high:
            return single(steps[0], values[0])
        first, last = values.index(low), values.index(high)
        both = (steps[first], low, steps[last], high) if first < last else (steps[last], high, steps[first], low)
        return _new(Extremes, both)
    if (found[1] <= low and high <= found[3]) or (found[3] <= low and high <= found[1]):
        return found
    for step, value in zip(steps, values, strict=True):
        if not (found[1] <= value <= found[3] or found[3] <= value <= found[1]):
            found = found.beyond(step, value)
    return found


def _joined(one: Extremes | None, other: Extremes | None) -> Extremes | None:
    return one.joined(other) if one and other else one or other


def numbers_of(reading: Reading) -> Numbers | None:
    """Return the numbers of a reading that curves are made of; None if it has none but a speed."""
    _, loss, lr, norm, scale = reading[:5]
    if loss is None and norm is None and scale is None and lr is None:
        return None
    return loss, norm, scale, lr, _steps_a_second(reading) if reading.throughput else None


def columns_of(readings: Readings) -> Columns:
    """Return the numbers of readings that curves are made of."""
    first, count = readings.first, len(readings.steps)
    scales = [first.scale] * count if first.scale is not None else None
    speeds = [_steps_a_second(readings.read(row)) for row in readings.rows] if first.throughput else ()
    # All of them are known, or none: 0 seconds a step are no speed, and are 0 in all readings.
    known = [speed for speed in speeds if speed is not None]
    return readings.losses, readings.norms, scales, readings.lrs, known or None


def _steps_a_second(reading: Reading) -> float | None:
    speeds = reading.throughput
    if "it/s" in speeds:
        return speeds["it/s"]
    seconds = speeds.get("s/it") or speeds.get("ms/it", 0.0) / 1000
    return 1 / seconds if seconds else None
