"""Decides how far back a run goes: the step that a checkpoint must be older than after a fault.

A finite checkpoint can still be bad, because it was written while the numbers were leaving their range. When the
fault comes back soon after a resume, the resume point itself is suspect.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Knobs
from rung.recovery.decide.diagnose import blew_up_before
from rung.recovery.decide.incident import incident_after
from rung.recovery.decide.treatments import climbs_ladder
from rung.recovery.monitors.fault_groups import BAD_NUMBERS

# A fault within this many save intervals of the resume came with the checkpoint.
SUSPECT = 2
# How many intervals further back the next one must be: the one just before it is usually bad, too.
BACK = 4
# A run this short that drifted before it had halved its first loss has learned nothing: its checkpoints cost more than
# they save.
SHORT = 1000
LEARNED = 0.5


def resume_limit(attempts: Sequence[Attempt], knobs: Knobs) -> int | None:
    """Return the step a checkpoint must be older than after these attempts; None: any checkpoint is good."""
    last = attempts[-1]
    fault = last.fault
    if fault is None or not climbs_ladder(fault):
        return None
    root = incident_after(attempts, knobs).root_fault
    if fault.kind is FaultKind.NOT_LEARNING and root is not None and root.began is not None:
        return root.began
    limit = fault.began if fault.began is not None else last.furthest_step
    if limit is None or fault.kind not in BAD_NUMBERS:
        return limit
    return 0 if _learned_nothing(attempts, limit) else min(limit, _suspect_from(attempts, limit))


def _learned_nothing(attempts: Sequence[Attempt], began: int) -> bool:
    """Return whether the run drifted before it had learned anything, so that it can start from scratch."""
    last = attempts[-1]
    assert last.fault is not None
    if last.fault.shape != "drift" or not blew_up_before(last.fault) or began > SHORT or last.resume_point:
        return False
    first, level = attempts[0].first_loss, last.healthy_loss
    return first is not None and (level is None or level > LEARNED * abs(first))


def _suspect_from(attempts: Sequence[Attempt], began: int) -> int:
    """Return the first step whose checkpoints are suspect; `began` when the resume point is not suspect."""
    last = attempts[-1]
    point, fault = last.resume_point, last.fault
    if not point or fault is None:
        return began
    every = _interval(attempts, point)
    if blew_up_before(fault) and began <= point + SUSPECT * every:
        return max(0, point - BACK * every)
    failed = [each for each in attempts if climbs_ladder(each.fault) and each.resume_point == point]
    return point if len(failed) > 1 else began


def _interval(attempts: Sequence[Attempt], point: int) -> int:
    """Return the steps between two checkpoints: as recorded, or the distance from resume point to fault."""
    steps = sorted({step for attempt in attempts for step in attempt.saved.values()})
    if len(steps) > 1:
        return max(1, int(median(after - before for before, after in pairwise(steps))))
    before = [each.fault.began for each in attempts[:-1] if each.fault and each.fault.began is not None]
    return max(1, max((step - point for step in before), default=1))
