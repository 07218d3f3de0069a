"""Defines how high a loss must be to count as blown up, as multiples of the run's first loss.

Each question has its own threshold. With less other evidence it must be higher: when a fault is known, a wrong answer
only costs an older checkpoint, while an alarm in a run without a fault costs the run.
onset.py and cusum.py measure rises above a learned level, in sigmas.

The shares are from `python -m tests.bench levels`: 374 healthy trainings, 126 whose lr is too high from the first step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

# A fault is known, in the first steps: at which step did the loss leave its range? 104 of 126 do, 17 % of healthy runs.
EARLY_ONSET = 2.0
# A rung was applied and the run goes on: is it worse than untrained, even if its loss falls? No healthy run is.
# The highest is at 1.02.
WRECKED = 2.0
# A fault is known: did the loss blow up before it, as with too high an lr? At 2, 0.7 % of healthy steps are above;
# at 5, 0.3 %, and 69 instead of 73 of the others.
BEFORE_FAULT = 5.0
# No fault is known: did the first steps blow up, so that the run may never learn (see BlowUp.is_spent)? 51 healthy
# runs are above 2, 16 above 5, 10 above 10; the others go from 68 to 61 to 58.
EARLY_BLOW_UP = 10.0
# No fault is known and the log ends: has the run unlearned more than it knew? Of the trainings measured, 2 would do
# (none of the healthy ones, 65 instead of 46 of the others), but the loss of a GAN may grow by design.
AT_END = 20.0
# The same for a log of a few readings, which show no level: two of them, or four, must be clearer than a median.
EXPLODED = 100.0
# No fault is known and the run goes on: no healthy loss is ten thousand times that of the untrained model.
RUINED = 1e4
# No lr raises a loss by this factor from one reading to the next; a bad batch does.
JUMP = 1000.0
# A first loss below this can be noise around zero, as for a policy or a GAN.
SMALL = 0.1
# An lr that changes by less than this factor is not rising.
LR_RAISED = 1.1
# The loss of a policy or a critic swings around zero. A loss that only passes zero once, such as a log-likelihood that
# is learned, does not change its sign so often within a few readings.
SIGN_CHANGES = 3


def swings_around_zero(losses: Sequence[float]) -> bool:
    """Return whether a loss changes its sign again and again: its height does not show how well a run learns."""
    changes = sum(before * after < 0 for before, after in pairwise(losses))
    return changes >= SIGN_CHANGES


def blew_up(first: float | None, last: float | None) -> bool:
    """Return whether the last loss before a fault is finite and far above the run's first."""
    return first is not None and last is not None and BEFORE_FAULT * max(abs(first), SMALL) < last < math.inf
