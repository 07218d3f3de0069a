"""Lays numbers out along an axis: its range, whether it is logarithmic, and round numbers for its ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Above this ratio of the largest to the smallest value, a curve looks flat on a linear axis.
LOGARITHMIC = 50.0
MOST_TICKS = 5
# Numbers beyond this are drawn at it, so that no sum of them overflows.
LARGEST = 1e300


@dataclass(frozen=True)
class Axis:
    """A range of values and the two places where it is drawn."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False
    # The one value of a curve that never changes.
    constant: float | None = None

    def place(self, value: float) -> float:
        low, high = self._scaled(self.low), self._scaled(self.high)
        share = (self._scaled(_bounded(value)) - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.logarithmic else value

    def ticks(self) -> list[float]:
        """Return a few round values inside the range, or the only value there is."""
        if self.constant is not None:
            return [self.constant]
        found = _decades(self.low, self.high) if self.logarithmic else _round_steps(self.low, self.high)
        return found or [self.low, self.high]


def value_axis(values: Sequence[float], start: float, end: float) -> Axis | None:
    """Return the axis for some values; None where none is finite."""
    finite = [_bounded(value) for value in values if math.isfinite(value)]
    if not finite:
        return None
    low, high = min(finite), max(finite)
    logarithmic = low > 0 and high / low > LOGARITHMIC
    room = 0.0 if logarithmic or high > low else abs(low) * 0.05 or 1.0
    return Axis(low - room, high + room, start, end, logarithmic, constant=low if high == low else None)


def _bounded(value: float) -> float:
    return max(-LARGEST, min(LARGEST, value))


def _round_steps(low: float, high: float) -> list[float]:
    """Return the multiples of 1, 2 or 5 times a power of ten in the range."""
    rough = (high - low) / MOST_TICKS
    if not rough > 0:
        return []
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * each for each in (1, 2, 5, 10) if power * each >= rough), power * 10)
    first, count = math.ceil(low / step), math.floor(high / step)
    return [step * index for index in range(first, min(count, first + 2 * MOST_TICKS) + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Return powers of ten in the range, and others between them where it has only one or two."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, (last - first) // MOST_TICKS)
    factors = {1: (1, 2, 5), 2: (1, 3)}.get(last - first, (1,))
    found = [factor * 10.0**power for power in range(first, last + 1, every) for factor in factors]
    return [value for value in found if low <= value <= high]
