"""Owns how far back a run goes: the step that a checkpoint must be older than after a fault.

A checkpoint can be finite and spoilt all the same: written while the numbers were leaving their range, or while a
schedule was driving them out. Where the fault is back soon after a resume, the resume point itself is suspect.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Knobs
from rung.recovery.decide.checkpoint_choice import numeric
from rung.recovery.decide.diagnose import NUMBERS, has_soared
from rung.recovery.decide.incident import stand

# A fault within this many save intervals of the resume came with the checkpoint.
SUSPECT = 2
# How many intervals further back the next one must be: the one just before it was mostly written in the same trouble.
BACK = 4
# A run this short that has not halved its first loss before it drifted off has learned nothing worth going on from: its
# checkpoints cost more than they save.
SHORT = 1000
LEARNED = 0.5


def resume_limit(attempts: Sequence[Attempt], knobs: Knobs) -> int | None:
    """Return the step a checkpoint must be older than after these attempts; None: any will do."""
    last = attempts[-1]
    fault = last.fault
    if fault is None or not numeric(fault):
        return None
    root = stand(attempts, knobs).root
    if fault.kind is FaultKind.NOT_LEARNING and root is not None and root.began is not None:
        return root.began
    limit = fault.began if fault.began is not None else last.furthest_step
    if limit is None or fault.kind not in NUMBERS:
        return limit
    return 0 if _learned_nothing(attempts, limit) else min(limit, _suspect(attempts, limit))


def _learned_nothing(attempts: Sequence[Attempt], began: int) -> bool:
    """Tell whether the run drifted off before it had learned anything, so that its first weights are as good."""
    last = attempts[-1]
    assert last.fault is not None
    if last.fault.shape != "drift" or not has_soared(last.fault) or began > SHORT or _resumed_at(last):
        return False
    first, level = attempts[0].first_loss, last.healthy_loss
    return first is not None and (level is None or level > LEARNED * abs(first))


def _suspect(attempts: Sequence[Attempt], began: int) -> int:
    """Return the step below which a resume point is above suspicion; `began` where there is none."""
    last = attempts[-1]
    point, fault = _resumed_at(last), last.fault
    if not point or fault is None:
        return began
    every = _interval(attempts, point)
    if has_soared(fault) and began <= point + SUSPECT * every:
        return max(0, point - BACK * every)
    failed = [each for each in attempts if each.fault and numeric(each.fault) and _resumed_at(each) == point]
    return point if len(failed) > 1 else began


def _resumed_at(attempt: Attempt) -> int:
    return attempt.resumed_step if attempt.resumed_step is not None else attempt.planned_step or 0


def _interval(attempts: Sequence[Attempt], point: int) -> int:
    """Return the steps between two checkpoints, as the job told them, or as far as the resume point lay back."""
    steps = sorted({step for attempt in attempts for step in attempt.saved.values()})
    if len(steps) > 1:
        return max(1, int(median(after - before for before, after in pairwise(steps))))
    before = [each.fault.began for each in attempts[:-1] if each.fault and each.fault.began is not None]
    return max(1, max((step - point for step in before), default=1))
