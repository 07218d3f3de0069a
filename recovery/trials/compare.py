"""Compares two trials by their losses at equal steps.

Both ran on the same batches, so the differences from step to step have less noise than the losses themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

Readings = Sequence[tuple[int, float]]

# The end of a window: its last third, where the difference between two rungs is largest. Two trials are compared over
# the last half: it shows nine of ten lower learning rates that end 2 % better or more; the last third, eight.
END, COMPARED = 1 / 3, 1 / 2
# Two losses within 1 % of each other are the same: the gauntlet calls a run within 1 % of the healthy one as good.
SAME_LEVEL = 0.01
# The difference of two runs without a difference is beyond two standard errors once in twenty times.
ERRORS = 2.0
# A tenth of the differences is left out at either side, and one at least, so that a single enormous loss changes
# nothing.
LEFT_OUT = 10
# With fewer common readings there is no noise to measure: only a difference beyond this share counts.
FEW, FEW_SHARE = 5, 0.1


@dataclass(frozen=True)
class Comparison:
    """By how much the first of two trials is higher than the second, and how much of that may be noise."""

    difference: float
    noise: float
    # The loss of the second, which shares are taken of.
    size: float
    # Whether it is lower at so many of the steps that chance does not explain it.
    mostly_lower: bool = False

    @property
    def is_lower(self) -> bool:
        return self.difference < -self.noise or self.mostly_lower

    @property
    def is_far_higher(self) -> bool:
        """Tell whether it is so far behind that the rest of the window cannot change it."""
        return self.difference > 2 * self.noise


def end_of(readings: Readings, start: int, until: int, share: float = END) -> list[tuple[int, float]]:
    """Return the readings at the end of a window."""
    first = until - (until - start) * share
    return [(step, loss) for step, loss in readings if first <= step <= until]


def level(readings: Readings, start: int, until: int) -> float | None:
    """Return the loss at the end of a window; None if none was seen there."""
    found = [loss for _, loss in end_of(readings, start, until)]
    return median(found) if found else None


def compare(one: Readings, other: Readings, start: int, until: int) -> Comparison | None:
    """Compare two trials over the last half of a window, at the steps that both have reported.

    None: one of them has reported nothing there.
    """
    ours, theirs = end_of(one, start, until, COMPARED), dict(end_of(other, start, until, COMPARED))
    pairs = [(loss, theirs[step]) for step, loss in ours if step in theirs]
    if not ours or not theirs:
        return None
    if not pairs:
        pairs = [(median(loss for _, loss in ours), median(theirs.values()))]
    differences = sorted(mine - their for mine, their in pairs)
    size = median(abs(their) for _, their in pairs)
    if len(pairs) < FEW:
        return Comparison(median(differences), FEW_SHARE * size, size)
    middle, error = _trimmed(differences)
    return Comparison(middle, max(ERRORS * error, SAME_LEVEL * size), size, _is_mostly_lower(differences, size))


def _is_mostly_lower(differences: Sequence[float], size: float) -> bool:
    """Return whether most differences are below zero, beyond chance (a sign test): a loss that soars has no noise."""
    lower, higher = sum(each < 0 for each in differences), sum(each > 0 for each in differences)
    beyond_chance = lower - higher > ERRORS * math.sqrt(len(differences))
    return beyond_chance and median(differences) < -SAME_LEVEL * size


def _trimmed(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of sorted values without those at either side, and its standard error (Yuen 1974)."""
    count, out = len(values), max(1, len(values) // LEFT_OUT)
    kept = values[out : count - out]
    pulled_in = [*[kept[0]] * out, *kept, *[kept[-1]] * out]
    centre = mean(pulled_in)
    spread = math.sqrt(sum((value - centre) ** 2 for value in pulled_in) / (count - 1))
    return mean(kept), spread * math.sqrt(count) / len(kept)
