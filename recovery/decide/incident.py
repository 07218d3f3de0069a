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
class Standing:
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


def stand(attempts: Sequence[Attempt], knobs: Knobs) -> Standing:
    """Return where a job that began with `knobs` stands after these attempts, oldest first."""
    standing = Standing(kept=knobs)
    for attempt in attempts:
        if attempt.fault is not None:
            standing = _after(standing, attempt, attempt.fault)
        elif attempt.outcome is Outcome.STOPPED:
            standing = _cured(standing, attempt)
    return standing


def _cured(standing: Standing, attempt: Attempt) -> Standing:
    """Close the incident: what this attempt ran with has proved itself, whatever a step back from it may bring."""
    return Standing(attempt.asked, infra=standing.infra, free=standing.free)


def _after(before: Standing, attempt: Attempt, fault: Fault) -> Standing:
    standing = replace(before, pending=attempt.rung or before.pending, undone=())
    if attempt.stepped_back and TREATMENTS[fault.kind].budget is not Budget.INFRA:
        standing = replace(standing, free=standing.free + 2)
    if not numeric(fault):
        return _after_other(standing, attempt, fault)
    standing = replace(standing, fault_steps=(*standing.fault_steps, attempt.fault_step))
    if standing.root is None:
        return replace(standing, root=fault, root_attempt=attempt.number, reach=attempt.fault_step, pending=None)
    if standing.pending is None:
        return _same_knobs_again(standing, attempt, fault)
    ignored = _why_ignored(standing, attempt)
    if ignored is not None:
        same = _same_knobs_again(standing, attempt, fault)
        return _useless(replace(same, pending=standing.pending, fault_steps=before.fault_steps), ignored)
    standing = _counted(standing)
    useless = _why_useless(standing, attempt, fault)
    if useless is None:
        return _helped(standing, attempt, fault)
    return _useless(standing, useless)


def _counted(standing: Standing) -> Standing:
    lowered = standing.lowered + (standing.pending == RungName.LOWER_LR)
    return replace(standing, tries=standing.tries + 1, lowered=lowered)


def _after_other(standing: Standing, attempt: Attempt, fault: Fault) -> Standing:
    """Count a fault that is not of the numbers; one of unknown cause right after a rung is that rung's doing."""
    if fault.kind is not FaultKind.UNKNOWN_EXIT:
        return replace(standing, infra=standing.infra + 1)
    # A checkpoint that cannot be loaded is to blame itself; the rung is still on trial.
    broken = standing.pending and attempt.rung and not quarantined([attempt])
    if broken and not later(attempt.fault_step, standing.reach):
        broke = f"attempt {attempt.number} ended without a known fault: {fault.evidence[:120]}"
        return _useless(_counted(standing), broke)
    anew = later(attempt.fault_step, standing.unknown_reach)
    return replace(standing, unknown=1 if anew else standing.unknown + 1, unknown_reach=attempt.fault_step)


def _same_knobs_again(standing: Standing, attempt: Attempt, fault: Fault) -> Standing:
    if later(attempt.fault_step, standing.reach):
        return replace(_helped(standing, attempt, fault), kept=standing.kept)
    return standing


def _why_ignored(standing: Standing, attempt: Attempt) -> str | None:
    """Return in what the pending rung did not take, or None where it did: one that did not has proven nothing."""
    changed = attempt.asked.changes_from(standing.kept)
    ignored = {name: pair for name, pair in not_taken(attempt.asked, attempt.effective).items() if name in changed}
    if not ignored:
        return None
    name, (asked, effective) = next(iter(ignored.items()))
    return f"did not take in attempt {attempt.number}: {name} asked {asked}, effective {effective}"


def _why_useless(standing: Standing, attempt: Attempt, fault: Fault) -> str | None:
    """Return why the pending rung is not worth keeping, or None when it helped."""
    # Half as much memory is a step in the right direction, wherever the memory ran out.
    half = fault.kind is FaultKind.OOM and standing.pending == RungName.LOWER_BATCH
    if half or _not_low_enough(standing, attempt, fault):
        return None
    if fault.kind is FaultKind.NOT_LEARNING:
        return f"attempt {attempt.number} had stopped learning: {fault.evidence}"
    if later(attempt.fault_step, standing.reach):
        return None
    return f"made no difference: {fault.kind} at step {attempt.fault_step} in attempt {attempt.number}"


def _not_low_enough(standing: Standing, attempt: Attempt, fault: Fault) -> bool:
    """Tell whether the lr was lowered while the numbers soar, and may be lowered on: a tenth may be too little."""
    if standing.pending != RungName.LOWER_LR or standing.lowered >= MOST_LOWERED:
        return False
    shapes = (fault.shape, standing.root.shape if standing.root else None)
    return "drift" in shapes or is_soaring(attempt.first_loss, attempt.loss)


def _helped(standing: Standing, attempt: Attempt, fault: Fault) -> Standing:
    """Keep the knobs and let every rung be tried again from there: the run came further than ever."""
    if fault.kind is FaultKind.NOT_LEARNING:
        # The fault being cured is still the one from before.
        return replace(standing, kept=attempt.asked, pending=None, tried={})
    anew = attempt.fault_step >= MUCH_LATER * max(standing.reach, FIRST_STEPS)
    return replace(
        standing,
        kept=attempt.asked,
        root=fault,
        root_attempt=attempt.number,
        reach=max(attempt.fault_step, standing.reach),
        pending=None,
        tried={},
        tries=0 if anew else standing.tries,
        lowered=0 if anew else standing.lowered,
    )


def _useless(standing: Standing, why: str) -> Standing:
    rung = standing.pending or ""
    return replace(standing, pending=None, tried={**standing.tried, rung: why}, undone=((rung, why),))
