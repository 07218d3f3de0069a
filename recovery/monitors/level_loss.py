"""Tells whether the loss of a run is level, at steps that do not depend on how fast its log is read."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from rung.recovery.monitors.learning import (
    MIN_READINGS,
    MOSTLY_LEARNED,
    SAME_LEVEL,
    LossHistory,
    spread_of,
    was_falling,
)

# The first look comes after twice the length of a trial; each next one half as far again. Ten times the right lr was
# seen from 200 steps on, in each of four models with SGD, momentum and Adam.
FIRST_LOOK, NEXT_LOOK = 200, 1.5
# A log with one line an epoch shows after four lines whether it falls. With the right lr, each of five models was at
# least 3 % below its second and third line then; with twenty times as much, one in three was not, and most had NaN.
FEW_READINGS = 4


def look_steps(begun: int, last: int) -> Iterator[int]:
    """Yield the steps at which a run that began at one step and has come to another is looked at."""
    distance = float(FIRST_LOOK)
    while begun + distance <= last:
        yield begun + int(distance)
        distance *= NEXT_LOOK


def is_level(history: LossHistory, step: int, since: int = 0) -> bool:
    """Return whether the loss no longer falls at a step. While the lr still rises, as in a warm-up, nobody knows."""
    return was_falling(history, step, since) is False and history.lr_rose_at <= (since + step) // 2


def is_level_and_high(history: LossHistory, step: int, untrained: float | None) -> bool:
    """Return whether the loss of a young run is level although it has not come down to half of the untrained model's.

    From a fifth to five times the right lr, none of eight trainings was. With twenty times, three were, three ended in
    NaN, and two came to half of the untrained loss all the same.
    """
    late, seen = history.between(step // 2, step), history.between(0, step)
    high = untrained is None or (bool(late) and median(late) >= MOSTLY_LEARNED * untrained)
    if not high or history.lr_rose_at > step // 2:
        return False  # it has learned; or it is too early to tell
    if FEW_READINGS <= len(seen) < MIN_READINGS:
        return _is_level_in_few(seen)
    if len(late) < MIN_READINGS or 2 * spread_of(late) >= abs(median(late)):
        return False  # too early to tell; and a loss around zero, as that of a policy, has no level
    return is_level(history, step) or _is_no_new_low(history, step)


def _is_level_in_few(losses: list[float]) -> bool:
    """Return whether the last of a few losses is no lower than those before it; the first steps do not count."""
    return 0 < (1 - SAME_LEVEL) * min(losses[1:-1]) <= losses[-1]


def _is_no_new_low(history: LossHistory, step: int) -> bool:
    """Return whether a loss has been as low before: one that blew up falls for long, and has not learned anything."""
    third = step // 6
    late = history.between(step - third, step)
    before = [history.between(first, first + third) for first in range(0, step // 2, max(1, third))]
    lowest = min((median(losses) for losses in before if losses), default=None)
    return bool(late) and lowest is not None and median(late) >= (1 - SAME_LEVEL) * lowest
