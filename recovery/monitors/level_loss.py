"""Tells whether the loss of a run is level, at steps that do not depend on how fast its log is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
# A loss that was so many times that of the untrained model, or of its own level, as often as this, has soared.
SOARED, OFTEN = 10.0, 2


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

    One that soared in its first steps and came down again has not learned either, however low it is.
    From a fifth to five times the right lr, none of eight trainings was. With twenty times, three were, three ended in
    NaN, and two came to half of the untrained loss all the same.
    """
    late = history.between(step // 2, step)
    if len(late) < MIN_READINGS or history.lr_rose_at > step // 2 or 2 * spread_of(late) >= abs(median(late)):
        return False  # too early to tell; and a loss around zero, as that of a policy, has no level
    high = (
        untrained is None or median(late) >= MOSTLY_LEARNED * untrained or _soared(history.between(0, step), untrained)
    )
    return high and (is_level(history, step) or _is_no_new_low(history, step))


def has_spikes(history: Sequence[tuple[int, float]], step: int) -> bool:
    """Return whether single losses soared in the second half of some steps, as those of batches with outliers do."""
    late = [loss for at, loss in history if step // 2 <= at <= step]
    return bool(late) and _soared(late, median(late))


def _soared(losses: list[float], level: float) -> bool:
    return level > 0 and sum(loss > SOARED * level for loss in losses) >= OFTEN


def _is_no_new_low(history: LossHistory, step: int) -> bool:
    """Return whether a loss has been as low before: one that blew up falls for long, and has not learned anything."""
    third = step // 6
    late = history.between(step - third, step)
    before = [history.between(first, first + third) for first in range(0, step // 2, max(1, third))]
    lowest = min((median(losses) for losses in before if losses), default=None)
    return bool(late) and lowest is not None and median(late) >= (1 - SAME_LEVEL) * lowest
