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
    if not _OTHER_RANK.match(fault.evidence):
        return True
    return step is not None and fault.step is not None and step > fault.step + NEAR


def _shown(replay: Replay) -> int:
    """Return how much of the cause a replay shows: 2: a bad number from good weights; 1: only bad weights; 0: none."""
    if replay.get("weights") == "nonfinite":
        return 1
    return 2 if "nonfinite" in replay.values() or replay.keys() & {"where", "cure"} else 0


def _step(replay: Replay) -> int:
    text = replay.get("step", "")
    return int(text[:15]) if text.isdecimal() else 0
