"""Compares two trials by their losses at equal steps.

Both ran on the same batches, so the differences from step to step have less noise than the losses themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

Readings = Sequence[tuple[int, float]]

# The end of a window: its last third, where the difference between two rungs is largest.
END = 1 / 3
# Two losses within 1 % of each other are the same: the gauntlet calls a run within 1 % of the healthy one as good.
SAME_LEVEL = 0.01
# The difference of two runs without a difference is beyond two standard errors once in twenty times.
ERRORS = 2.0
# The standard error of a median, from the median distance to it: 1.4826 for the spread, 1.2533 for the median. A batch
# whose loss is a million times too high changes neither.
OF_A_MEDIAN = 1.4826 * 1.2533
# With fewer common readings there is no noise to measure: only a difference beyond this share counts.
FEW, FEW_SHARE = 3, 0.1


@dataclass(frozen=True)
class Comparison:
    """By how much the first of two trials is higher than the second, and how much of that may be noise."""

    difference: float
    noise: float

    @property
    def is_lower(self) -> bool:
        return self.difference < -self.noise

    @property
    def is_far_higher(self) -> bool:
        """Tell whether it is so far behind that the rest of the window cannot change it."""
        return self.difference > 2 * self.noise


def end_of(readings: Readings, start: int, until: int) -> list[tuple[int, float]]:
    """Return the readings at the end of a window."""
    first = until - (until - start) * END
    return [(step, loss) for step, loss in readings if first <= step <= until]


def level(readings: Readings, start: int, until: int) -> float | None:
    """Return the loss at the end of a window; None if none was seen there."""
    found = [loss for _, loss in end_of(readings, start, until)]
    return median(found) if found else None


def compare(one: Readings, other: Readings, start: int, until: int) -> Comparison | None:
    """Compare two trials over the end of a window, at the steps that both have reported; None: one has none there."""
    ours, theirs = end_of(one, start, until), dict(end_of(other, start, until))
    pairs = [(loss, theirs[step]) for step, loss in ours if step in theirs]
    if not ours or not theirs:
        return None
    if not pairs:
        pairs = [(median(loss for _, loss in ours), median(theirs.values()))]
    differences = [mine - their for mine, their in pairs]
    size, middle = median(abs(their) for _, their in pairs), median(differences)
    if len(pairs) < FEW:
        return Comparison(middle, FEW_SHARE * size)
    spread = median(abs(each - middle) for each in differences)
    error = OF_A_MEDIAN * spread / math.sqrt(len(differences))
    return Comparison(middle, max(ERRORS * error, SAME_LEVEL * size))
