"""Owns going back up to speed: when a cured run may try its first precision or lr again, and what a fault then means.

Pure, and once in a job: a run that falls back has given its answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from rung.jobs.job import Attempt, Job, Outcome
from rung.jobs.model.knobs import Knobs
from rung.recovery.decide.checkpoint_choice import Checkpoint, choose
from rung.recovery.decide.decide import Relaunch
from rung.recovery.decide.incident import stand
from rung.recovery.decide.resume_limit import resume_limit
from rung.recovery.decide.treatments import TREATMENTS, Budget

# What nothing asked of a knob means.
OWN = "the script's own"


def faster(first: Knobs, now: Knobs) -> Knobs | None:
    """Return the knobs to go back to: the first precision, or where that is still in use the first lr."""
    if (now.precision, now.params) != (first.precision, first.params):
        return now.but(precision=first.precision, params=first.params)
    return now.but(lr=first.lr) if now.lr != first.lr else None


def due(job: Job, attempts: Sequence[Attempt]) -> bool:
    """Tell whether the last of these attempts has been clean for long enough to try again what it began with."""
    clean, last = job.spec.recovery.step_back, attempts[-1]
    if clean is None or not last.recovered or last.fault is not None or last.furthest_step is None:
        return False
    if any(attempt.stepped_back for attempt in attempts) or faster(job.knobs, last.asked) is None:
        return False
    fault_step = cured_at(job, attempts)
    return fault_step is not None and last.furthest_step - fault_step >= clean


def cured_at(job: Job, attempts: Sequence[Attempt]) -> int | None:
    """Return the step of the fault that the last attempt has got over; None where there was none."""
    incident = stand(attempts[:-1], job.knobs)
    return incident.reach if incident.root is not None else None


def possible(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint]) -> bool:
    """Tell whether a healthy checkpoint lies beyond the fault, so that going back loses nothing of the cure."""
    fault_step, found = cured_at(job, attempts), choose(checkpoints, attempts, None).checkpoint
    return fault_step is not None and found is not None and found.step > fault_step


def why(job: Job, attempts: Sequence[Attempt]) -> str:
    """Say what is about to be tried, and after how much."""
    last, fault_step = attempts[-1], cured_at(job, attempts)
    after = faster(job.knobs, last.asked)
    assert after is not None and fault_step is not None and last.furthest_step is not None
    pairs = after.changes_from(last.asked).items()
    changes = ", ".join(f"{name} {old} -> {OWN if new is None else new}" for name, (old, new) in pairs)
    clean = last.furthest_step - fault_step
    return f"{clean} clean steps since the fault at step {fault_step}: stepping back ({changes})"


def move(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint]) -> Relaunch | None:
    """Return what stepping back means for a job that is between two attempts; None: nothing, the fault decides."""
    last = attempts[-1]
    if last.outcome is Outcome.STOPPED:
        return _step_back(job, attempts, checkpoints)
    fault = last.fault
    if last.stepped_back and fault is not None and TREATMENTS[fault.kind].budget in (Budget.LADDER, Budget.ONCE):
        return _fall_back(job, attempts, checkpoints)
    return None


def _step_back(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint]) -> Relaunch:
    last, choice = attempts[-1], choose(checkpoints, attempts, None)
    after = faster(job.knobs, last.asked)
    if after is None or not possible(job, attempts, checkpoints):
        because = f"no healthy checkpoint is newer than the fault: the same knobs again; {choice.because}"
        return Relaunch(None, last.asked, choice.checkpoint, because)
    return Relaunch(None, after, choice.checkpoint, f"{why(job, attempts)}; {choice.because}", stepped_back=True)


def _fall_back(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint]) -> Relaunch:
    """Return to the knobs that had been kept: they cured the run once."""
    fault = attempts[-1].fault
    assert fault is not None
    kept = next(attempt.asked for attempt in reversed(attempts) if attempt.outcome is Outcome.STOPPED)
    choice = choose(checkpoints, attempts, resume_limit(attempts, job.knobs))
    at = f" at step {fault.step}" if fault.step is not None else ""
    because = f"{fault.kind}{at} after stepping back: the knobs that had cured it again, for good; {choice.because}"
    return Relaunch(None, kept, choice.checkpoint, because)
