"""Chooses between what several ranks say about one fault.

The rank whose own step went wrong shows the cause. The others see what comes of it: weights that are no longer finite,
or updates that are skipped although their own step is well. A run of one rank has no choice to make.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rung.jobs.model.fault import Fault

# What two ranks say at most so many steps apart can be about one fault: the scaler of all ranks skips an update for the
# bad numbers of one, eight in a row are replayed, and the lines of one rank may come a little later than another's.
NEAR = 16
# A rank that is not the first: the losses of a run are those of the first.
_OTHER_RANK = re.compile(r"\[?rank ?[1-9]", re.IGNORECASE)
Replay = Mapping[str, str]


def outranks(one: Replay, other: Replay) -> bool:
    """Return whether a replay shows more of the cause than another one near it; of the first rank the newest counts.

    A rank that is ahead of the first one may replay its next step too, before the first one reports anything.
    """
    if "rank" not in one and "rank" not in other:
        return False
    return abs(_step(one) - _step(other)) <= NEAR and _shown(one) > _shown(other)


def is_over(replay: Replay, step: int | None) -> bool:
    """Return whether a finite loss of the first rank at this step shows that the run got past a replay."""
    return "rank" not in replay or step is None or step > _step(replay) + NEAR


def got_past(fault: Fault, step: int | None) -> bool:
    """Return whether a finite loss of the first rank at this step shows that the run got past a fault."""
    return has_gone_on(fault.evidence, fault.step, step, exact=True)


def has_gone_on(raised: str, at: int | None, step: int | None, *, exact: bool) -> bool:
    """Return whether a finite loss of the first rank at a step shows that the run goes on after an exception.

    `exact`: `at` is the step of the exception, and not only that of the first loss after it.
    """
    if not is_of_another_rank(raised):
        return True
    return step is not None and at is not None and step > at + (NEAR if exact else 1)


def is_of_another_rank(text: str) -> bool:
    """Return whether a line is that of a rank whose losses are not those of the run."""
    return _OTHER_RANK.match(text) is not None


def _shown(replay: Replay) -> int:
    """Return how much of the cause a replay shows: 2: a bad number from good weights; 1: only bad weights; 0: none."""
    if replay.get("weights") == "nonfinite":
        return 1
    return 2 if "nonfinite" in replay.values() or replay.keys() & {"where", "cure"} else 0


def _step(replay: Replay) -> int:
    text = replay.get("step", "")
    return int(text[:15]) if text.isdecimal() else 0
