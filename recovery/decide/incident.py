"""Reads a job's attempts: which fault is being cured, which knobs helped, and which rungs did nothing.

A rung after which the fault came later is kept. A rung after which it came at the same step is taken back, so that a
useless rung does not slow down a later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import OFF, SPEED_ONLY, Knobs, RungName, not_taken
from rung.recovery.decide.quarantine import quarantined
from rung.recovery.decide.replay_cure import read_cure
from rung.recovery.decide.treatments import TREATMENTS, Budget, climbs_ladder
from rung.recovery.monitors.levels import blew_up

# A fault moves by a few steps when kernels are not deterministic; within this distance it is the same step.
SAME_STEP = 5
SAME_SHARE = 0.05
# A fault this many times later, and not in the first steps, is a new one; otherwise it is the same one, delayed.
MUCH_LATER, FIRST_STEPS = 10, 100
# Three reductions to a tenth reach the floor of the lr.
MAX_LR_REDUCTIONS = 3
STEPS_TO_FP32 = (RungName.CLAMP_CONSTANTS, RungName.FP32_MODULES, RungName.BF16)


@dataclass(frozen=True)
class Incident:
    """What is known about the current fault of a job after its attempts."""

    # The knobs of the last attempt that came further than those before it.
    proven_knobs: Knobs
    # The fault being cured: the first of this incident, not a side effect of a rung.
    root_fault: Fault | None = None
    root_attempt: int = 0
    # The furthest step at which a fault came, with `proven_knobs`.
    furthest_fault_step: int = 0
    # The rung whose effect is not known yet, because only infra faults came after it.
    pending_rung: str | None = None
    # Rungs tried since the last progress, and why each is not tried again.
    rejected_rungs: dict[str, str] = field(default_factory=dict)
    # The rung that the last attempt caused to be taken back.
    undone: tuple[tuple[str, str], ...] = ()
    # How many rungs took effect and did not end the incident, and how many of them lowered the lr.
    rungs_without_cure: int = 0
    lr_reductions: int = 0
    # How many of them were steps on the way to FP32 as a whole, which is one rung with all its steps.
    steps_to_fp32: int = 0
    infra_faults: int = 0
    # Launches that count against no budget: an interruption, a step back, and the return from one that failed.
    unbudgeted: int = 0
    # Exits without a known fault since the last progress, and the step of the last of them.
    unknown_exits: int = 0
    unknown_exit_step: int = 0
    fault_steps: tuple[int, ...] = ()


def is_later(step: int, than: int) -> bool:
    """Return whether a fault at `step` is progress over one at `than`, and not the same one again."""
    return step > than + max(SAME_STEP, int(than * SAME_SHARE))


def incident_after(attempts: Sequence[Attempt], knobs: Knobs) -> Incident:
    """Return the incident of a job that began with `knobs`, after these attempts, oldest first."""
    incident = Incident(proven_knobs=knobs)
    for attempt in attempts:
        if attempt.fault is not None:
            incident = _after_fault(incident, attempt, attempt.fault)
        elif attempt.level_at is not None:
            # It is past its fault and was stopped to try a lower lr: its knobs are proven, and the fault is still that.
            incident = replace(incident, proven_knobs=attempt.asked, pending_rung=None, rejected_rungs={})
        elif attempt.outcome is Outcome.STOPPED:
            # Rung stopped a healthy attempt, so its knobs are proven whatever happens after the step back.
            unbudgeted = incident.unbudgeted + attempt.stepped_back
            incident = Incident(attempt.asked, infra_faults=incident.infra_faults, unbudgeted=unbudgeted)
        elif attempt.outcome is Outcome.INTERRUPTED:
            # Its site ended it, which says nothing about its rung.
            pending, unbudgeted = attempt.rung or incident.pending_rung, incident.unbudgeted + 1
            incident = replace(incident, pending_rung=pending, unbudgeted=unbudgeted)
    return incident


def _after_fault(before: Incident, attempt: Attempt, fault: Fault) -> Incident:
    incident = replace(before, pending_rung=attempt.rung or before.pending_rung, undone=())
    step = attempt.fault_step
    if attempt.stepped_back and TREATMENTS[fault.kind].budget is not Budget.INFRA:
        incident = replace(incident, unbudgeted=incident.unbudgeted + 2)
    if not climbs_ladder(fault):
        return _after_other_fault(incident, attempt, fault)
    incident = replace(incident, fault_steps=(*incident.fault_steps, step))
    if incident.root_fault is None:
        # A rung without a fault before it is a lower lr that won a look: it is kept.
        kept = incident.proven_knobs if attempt.rung is None or attempt.stepped_back else attempt.asked
        return _with_root(replace(incident, pending_rung=None, proven_knobs=kept), attempt, fault, step)
    if incident.pending_rung is None:
        return _same_knobs_again(incident, attempt, fault)
    ignored = _why_ignored(incident, attempt)
    if ignored is not None:
        same = _same_knobs_again(incident, attempt, fault)
        return _rejected(replace(same, pending_rung=incident.pending_rung, fault_steps=before.fault_steps), ignored)
    incident = _count_rung(incident)
    useless = _why_useless(incident, attempt, fault)
    return _helped(incident, attempt, fault) if useless is None else _rejected(incident, useless)


def _with_root(incident: Incident, attempt: Attempt, fault: Fault, step: int) -> Incident:
    return replace(incident, root_fault=fault, root_attempt=attempt.number, furthest_fault_step=step)


def _count_rung(incident: Incident) -> Incident:
    return replace(
        incident,
        rungs_without_cure=incident.rungs_without_cure + 1,
        lr_reductions=incident.lr_reductions + (incident.pending_rung == RungName.LOWER_LR),
        steps_to_fp32=incident.steps_to_fp32 + (incident.pending_rung in STEPS_TO_FP32),
    )


def _after_other_fault(incident: Incident, attempt: Attempt, fault: Fault) -> Incident:
    """Count a fault that no rung treats; an unknown exit right after a rung is blamed on that rung."""
    if fault.kind is not FaultKind.UNKNOWN_EXIT:
        return replace(incident, infra_faults=incident.infra_faults + 1)
    step = attempt.fault_step
    # When a checkpoint cannot be loaded, the effect of the rung is still unknown.
    rung_to_blame = incident.pending_rung and attempt.rung and not quarantined([attempt])
    if rung_to_blame and not is_later(step, incident.furthest_fault_step):
        why = f"attempt {attempt.number} ended without a known fault: {fault.evidence[:120]}"
        return _rejected(_count_rung(incident), why)
    exits = 1 if is_later(step, incident.unknown_exit_step) else incident.unknown_exits + 1
    return replace(incident, unknown_exits=exits, unknown_exit_step=step)


def _same_knobs_again(incident: Incident, attempt: Attempt, fault: Fault) -> Incident:
    # A run that has stopped learning has not come further, whatever its step.
    if fault.kind is FaultKind.NOT_LEARNING or not is_later(attempt.fault_step, incident.furthest_fault_step):
        return incident
    return replace(_helped(incident, attempt, fault), proven_knobs=incident.proven_knobs)


def _why_ignored(incident: Incident, attempt: Attempt) -> str | None:
    """Return which knob of the pending rung did not reach the job; None where all did."""
    changed = attempt.asked.changes_from(incident.proven_knobs).keys() - SPEED_ONLY
    ignored = {name: pair for name, pair in not_taken(attempt.asked, attempt.effective).items() if name in changed}
    if not ignored:
        return None
    name, (asked, effective) = next(iter(ignored.items()))
    live = OFF if effective is None else effective
    return f"did not take in attempt {attempt.number}: {name} asked {asked}, effective {live}"


def _why_useless(incident: Incident, attempt: Attempt, fault: Fault) -> str | None:
    """Return why the pending rung is not kept, or None when it helped."""
    # A smaller batch needs less memory, even when the memory ran out again.
    smaller_batch = fault.kind is FaultKind.OOM and incident.pending_rung == RungName.LOWER_BATCH
    if smaller_batch or _may_lower_lr_again(incident, attempt, fault) or _may_add_places(incident, attempt, fault):
        return None
    if fault.kind is FaultKind.NOT_LEARNING:
        return f"attempt {attempt.number} had stopped learning: {fault.evidence}"
    if is_later(attempt.fault_step, incident.furthest_fault_step):
        return None
    return f"made no difference: {fault.kind} at step {attempt.fault_step} in attempt {attempt.number}"


def _may_lower_lr_again(incident: Incident, attempt: Attempt, fault: Fault) -> bool:
    """Return whether the lr was lowered, the loss still blows up, and a further tenth is allowed."""
    if incident.pending_rung != RungName.LOWER_LR or incident.lr_reductions >= MAX_LR_REDUCTIONS:
        return False
    shapes = (fault.shape, incident.root_fault.shape if incident.root_fault else None)
    return "drift" in shapes or blew_up(attempt.first_loss, attempt.loss)


def _may_add_places(incident: Incident, attempt: Attempt, fault: Fault) -> bool:
    """Return whether some places were in FP32, and the replay has found others that are needed too."""
    cure = read_cure(fault)
    if incident.pending_rung != RungName.FP32_MODULES or cure is None:
        return False
    return not set(cure.places) <= set((attempt.asked.fp32_modules or "").split(","))


def _helped(incident: Incident, attempt: Attempt, fault: Fault) -> Incident:
    """Keep the knobs and allow every rung again: the run came further than ever."""
    kept = replace(incident, proven_knobs=attempt.asked, pending_rung=None, rejected_rungs={})
    if fault.kind is FaultKind.NOT_LEARNING:
        # The fault being cured is still the one from before.
        return kept
    if attempt.fault_step >= MUCH_LATER * max(incident.furthest_fault_step, FIRST_STEPS):
        kept = replace(kept, rungs_without_cure=0, lr_reductions=0, steps_to_fp32=0)
    return _with_root(kept, attempt, fault, max(attempt.fault_step, incident.furthest_fault_step))


def _rejected(incident: Incident, why: str) -> Incident:
    rung = incident.pending_rung or ""
    rejected = {**incident.rejected_rungs, rung: why}
    return replace(incident, pending_rung=None, rejected_rungs=rejected, undone=((rung, why),))
