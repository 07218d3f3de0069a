"""Shows which trials each fault of the numbers would bring: it asks the code that decides about real ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rung.jobs.job import Attempt, Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Precision, RungName
from rung.recovery.decide.checkpoint_choice import HEALTHY, Checkpoint
from rung.recovery.decide.decide import Relaunch
from rung.recovery.monitors.level_loss import FIRST_LOOK
from rung.recovery.trials.between import HIGHER, LOWER
from rung.recovery.trials.decide_trials import decide_with_trials
from rung.recovery.trials.first_look import first_look
from rung.recovery.trials.plan import TRIED, shared_folder

# A fault late in a long run that saved shortly before, so that the bound on the cost leaves no candidate out.
STEP = 1_000_000
SAVED = Checkpoint("", STEP - 1, 0.0, HEALTHY)
A_TENTH = f"{RungName.LOWER_LR} x0.1"
# The loss was at its level before the fault, and a script that is reached from inside has reported its own values.
LOSS = 1.0
SCRIPT_VALUES = {"lr": 1.0, "precision": Precision.AMP_FP16.value}


def trial_candidates(job: Job) -> dict[str, list[str]]:
    """Return the candidates for each fault that trials decide about, the most likely first; empty without trials."""
    if job.spec.recovery.trials is None or shared_folder(job.spec):
        return {}
    return {fault.kind.value: _labels(job, fault) for fault in _faults(job)}


def _faults(job: Job) -> Iterator[Fault]:
    for kind in FaultKind:
        if kind in TRIED and kind is not FaultKind.NOT_LEARNING:
            yield Fault(kind, "", step=STEP)
    if job.spec.recovery.not_learning == "act":
        # A run that does not learn from the beginning. After another fault, the trials are about that one.
        yield Fault(FaultKind.NOT_LEARNING, "", step=1, onset=1)


def _labels(job: Job, fault: Fault) -> list[str]:
    inside = SCRIPT_VALUES if job.spec.knobs.mode == "zero-edit" else {}
    attempt = Attempt(
        job.id, 1, "", job.knobs, None, "", effective=inside, furthest_step=STEP, first_loss=LOSS, healthy_loss=LOSS,
        fault=fault,
    )  # fmt: skip
    decision = _look(job, attempt) or decide_with_trials(job, [attempt], [SAVED], None)
    trial = decision.trial if isinstance(decision, Relaunch) else None
    return [each.label for each in trial.candidates] if trial else []


def _look(job: Job, attempt: Attempt) -> Relaunch | None:
    """Return the look at a run that is seen not to learn while it goes on; None for any other fault."""
    if attempt.fault is None or attempt.fault.kind is not FaultKind.NOT_LEARNING:
        return None
    return first_look(job, [replace(attempt, fault=None, level_at=FIRST_LOOK)], None)


def trial_lines(job: Job) -> Iterator[str]:
    """Yield what the dry run says about trials."""
    found = trial_candidates(job)
    if not found:
        yield f"trial none ({shared_folder(job.spec) if job.spec.recovery.trials else 'recovery.trials: off'})"
    for kind, labels in found.items():
        yield f"trial {kind}: {', '.join(labels) if labels else 'none, one rung at most can be tried'}"
    if any(each == A_TENTH for labels in found.values() for each in labels):
        sides = f"x{HIGHER:g} of it if that still falls, x{LOWER:g} if it is level"
        yield f"trial after {RungName.LOWER_LR} has won: one lr between two tenths if its loss is still high, {sides}"
