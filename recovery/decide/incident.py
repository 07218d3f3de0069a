"""Owns the reading of a job's attempts: which knobs proved worth keeping, which rungs did nothing, what is being cured.

Keep what helped, undo what did not: a rung after which the fault came later stays; one after which it came at the
same step is taken back, so that a later rung is not crippled by an earlier, useless one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs, RungName, not_taken
from rung.recovery.decide.checkpoint_choice import numeric
from rung.recovery.decide.quarantine import quarantined
from rung.recovery.decide.treatments import TREATMENTS, Budget
from rung.recovery.monitors.learning import is_soaring

# A fault moves by a few steps when kernels are not deterministic; this much is still "the same step".
SAME_STEP = 5
SAME_SHARE = 0.05
# A fault that comes this many times later, and not in the first steps, is a new one; else it is the same one, delayed.
MUCH_LATER, FIRST_STEPS = 10, 100
# Three times a tenth is the floor of an lr.
MOST_LOWERED = 3


@dataclass(frozen=True)
class Incident:
    """Where a job stands after its attempts."""

    kept: Knobs
    # The fault being cured: the first of the present incident, not a side effect of a rung.
    root: Fault | None = None
    root_attempt: int = 0
    # The furthest step at which a fault stood, with `kept`.
    reach: int = 0
    # The rung whose effect is not known yet, since only infra faults came after it.
    pending: str | None = None
    # Rungs tried since the last progress, with why they are not tried again.
    tried: dict[str, str] = field(default_factory=dict)
    # The one just taken back by the last attempt.
    undone: tuple[tuple[str, str], ...] = ()
    # Rungs that took effect and did not end the incident, and how often the lr was lowered in it.
    tries: int = 0
    lowered: int = 0
    infra: int = 0
    # Launches that no budget pays: a step back that failed, and the return from it.
    free: int = 0
    # Exits that nobody knows, since the last progress, and how far the run had come at the last of them.
    unknown: int = 0
    unknown_reach: int = 0
    fault_steps: tuple[int, ...] = ()


def later(step: int, than: int) -> bool:
    """Tell whether a fault at `step` is progress over one at `than`, and not the same one again."""
    return step > than + max(SAME_STEP, int(than * SAME_SHARE))


def stand(attempts: Sequence[Attempt], knobs: Knobs) -> Incident:
    """Return where a job that began with `knobs` stands after these attempts, oldest first."""
    incident = Incident(kept=knobs)
    for attempt in attempts:
        if attempt.fault is not None:
            incident = _after(incident, attempt, attempt.fault)
        elif attempt.outcome is Outcome.STOPPED:
            incident = _cured(incident, attempt)
    return incident


def _cured(incident: Incident, attempt: Attempt) -> Incident:
    """Close the incident: what this attempt ran with has proved itself, whatever a step back from it may bring."""
    return Incident(attempt.asked, infra=incident.infra, free=incident.free)


def _after(before: Incident, attempt: Attempt, fault: Fault) -> Incident:
    incident = replace(before, pending=attempt.rung or before.pending, undone=())
    if attempt.stepped_back and TREATMENTS[fault.kind].budget is not Budget.INFRA:
        incident = replace(incident, free=incident.free + 2)
    if not numeric(fault):
        return _after_other(incident, attempt, fault)
    incident = replace(incident, fault_steps=(*incident.fault_steps, attempt.fault_step))
    if incident.root is None:
        return replace(incident, root=fault, root_attempt=attempt.number, reach=attempt.fault_step, pending=None)
    if incident.pending is None:
        return _same_knobs_again(incident, attempt, fault)
    ignored = _why_ignored(incident, attempt)
    if ignored is not None:
        same = _same_knobs_again(incident, attempt, fault)
        return _useless(replace(same, pending=incident.pending, fault_steps=before.fault_steps), ignored)
    incident = _counted(incident)
    useless = _why_useless(incident, attempt, fault)
    if useless is None:
        return _helped(incident, attempt, fault)
    return _useless(incident, useless)


def _counted(incident: Incident) -> Incident:
    lowered = incident.lowered + (incident.pending == RungName.LOWER_LR)
    return replace(incident, tries=incident.tries + 1, lowered=lowered)


def _after_other(incident: Incident, attempt: Attempt, fault: Fault) -> Incident:
    """Count a fault that is not of the numbers; one of unknown cause right after a rung is that rung's doing."""
    if fault.kind is not FaultKind.UNKNOWN_EXIT:
        return replace(incident, infra=incident.infra + 1)
    # A checkpoint that cannot be loaded is to blame itself; the rung is still on trial.
    broken = incident.pending and attempt.rung and not quarantined([attempt])
    if broken and not later(attempt.fault_step, incident.reach):
        broke = f"attempt {attempt.number} ended without a known fault: {fault.evidence[:120]}"
        return _useless(_counted(incident), broke)
    anew = later(attempt.fault_step, incident.unknown_reach)
    return replace(incident, unknown=1 if anew else incident.unknown + 1, unknown_reach=attempt.fault_step)


def _same_knobs_again(incident: Incident, attempt: Attempt, fault: Fault) -> Incident:
    if later(attempt.fault_step, incident.reach):
        return replace(_helped(incident, attempt, fault), kept=incident.kept)
    return incident


def _why_ignored(incident: Incident, attempt: Attempt) -> str | None:
    """Return in what the pending rung did not take, or None where it did: one that did not has proven nothing."""
    changed = attempt.asked.changes_from(incident.kept)
    ignored = {name: pair for name, pair in not_taken(attempt.asked, attempt.effective).items() if name in changed}
    if not ignored:
        return None
    name, (asked, effective) = next(iter(ignored.items()))
    return f"did not take in attempt {attempt.number}: {name} asked {asked}, effective {effective}"


def _why_useless(incident: Incident, attempt: Attempt, fault: Fault) -> str | None:
    """Return why the pending rung is not worth keeping, or None when it helped."""
    # Half as much memory is a step in the right direction, wherever the memory ran out.
    half = fault.kind is FaultKind.OOM and incident.pending == RungName.LOWER_BATCH
    if half or _not_low_enough(incident, attempt, fault):
        return None
    if fault.kind is FaultKind.NOT_LEARNING:
        return f"attempt {attempt.number} had stopped learning: {fault.evidence}"
    if later(attempt.fault_step, incident.reach):
        return None
    return f"made no difference: {fault.kind} at step {attempt.fault_step} in attempt {attempt.number}"


def _not_low_enough(incident: Incident, attempt: Attempt, fault: Fault) -> bool:
    """Tell whether the lr was lowered while the numbers soar, and may be lowered on: a tenth may be too little."""
    if incident.pending != RungName.LOWER_LR or incident.lowered >= MOST_LOWERED:
        return False
    shapes = (fault.shape, incident.root.shape if incident.root else None)
    return "drift" in shapes or is_soaring(attempt.first_loss, attempt.loss)


def _helped(incident: Incident, attempt: Attempt, fault: Fault) -> Incident:
    """Keep the knobs and let every rung be tried again from there: the run came further than ever."""
    if fault.kind is FaultKind.NOT_LEARNING:
        # The fault being cured is still the one from before.
        return replace(incident, kept=attempt.asked, pending=None, tried={})
    anew = attempt.fault_step >= MUCH_LATER * max(incident.reach, FIRST_STEPS)
    return replace(
        incident,
        kept=attempt.asked,
        root=fault,
        root_attempt=attempt.number,
        reach=max(attempt.fault_step, incident.reach),
        pending=None,
        tried={},
        tries=0 if anew else incident.tries,
        lowered=0 if anew else incident.lowered,
    )


def _useless(incident: Incident, why: str) -> Incident:
    rung = incident.pending or ""
    return replace(incident, pending=None, tried={**incident.tried, rung: why}, undone=((rung, why),))
