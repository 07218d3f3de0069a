"""Decides when a cured run tries its original precision or lr again (once per job), and what a fault then means."""

from __future__ import annotations

from collections.abc import Sequence

from rung.jobs.job import Attempt, Job, Outcome
from rung.jobs.model.knobs import NOT_SET, Knobs
from rung.recovery.decide.checkpoint_choice import Sighting, choose_checkpoint
from rung.recovery.decide.decide import Relaunch, Wait, with_place
from rung.recovery.decide.incident import incident_after
from rung.recovery.decide.resume_limit import resume_limit
from rung.recovery.decide.treatments import TREATMENTS, Budget


def faster_knobs(first: Knobs, now: Knobs) -> Knobs | None:
    """Return the knobs to go back to: the original precision, or the original lr where the precision is unchanged."""
    if (now.precision, now.params) != (first.precision, first.params):
        return now.but(precision=first.precision, params=first.params, matmul=first.matmul)
    return now.but(lr=first.lr) if now.lr != first.lr else None


def is_due(job: Job, attempts: Sequence[Attempt]) -> bool:
    """Return whether the last of these attempts has been clean long enough to step back."""
    clean, last = job.spec.recovery.step_back, attempts[-1]
    if clean is None or not last.recovered or last.fault is not None or last.furthest_step is None:
        return False
    if any(attempt.stepped_back for attempt in attempts) or faster_knobs(job.knobs, last.asked) is None:
        return False
    fault_step = cured_fault_step(job, attempts)
    return fault_step is not None and last.furthest_step - fault_step >= clean


def cured_fault_step(job: Job, attempts: Sequence[Attempt]) -> int | None:
    """Return the step of the fault that the last attempt has passed; None when there was none."""
    incident = incident_after(attempts[:-1], job.knobs)
    return incident.furthest_fault_step if incident.root_fault is not None else None


def is_possible(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting]) -> bool:
    """Return whether there is a healthy checkpoint after the fault, so that no progress is lost."""
    fault_step, found = cured_fault_step(job, attempts), choose_checkpoint(checkpoints, attempts, None).checkpoint
    return fault_step is not None and found is not None and found.step > fault_step


def describe_step_back(job: Job, attempts: Sequence[Attempt]) -> str:
    """Describe the step back and how many clean steps came before it."""
    last, fault_step = attempts[-1], cured_fault_step(job, attempts)
    after = faster_knobs(job.knobs, last.asked)
    assert after is not None and fault_step is not None and last.furthest_step is not None
    pairs = after.changes_from(last.asked).items()
    changes = ", ".join(f"{name} {old} -> {NOT_SET if new is None else new}" for name, (old, new) in pairs)
    clean = last.furthest_step - fault_step
    return f"{clean} clean steps since the fault at step {fault_step}: stepping back ({changes})"


def decide_step_back(
    job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting], other_hosts: Sequence[str] = ()
) -> Relaunch | Wait | None:
    """Return the next launch of a job that steps back or whose step back failed; None for any other job."""
    last = attempts[-1]
    fault = last.fault
    if last.outcome is Outcome.STOPPED and last.level_at is None:
        decision = _step_back(job, attempts, checkpoints)
    elif last.stepped_back and fault is not None and TREATMENTS[fault.kind].budget in (Budget.LADDER, Budget.ONCE):
        decision = _fall_back(job, attempts, checkpoints)
    else:
        return None
    return with_place(decision, job, attempts, checkpoints, other_hosts)


def _step_back(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting]) -> Relaunch:
    last, choice = attempts[-1], choose_checkpoint(checkpoints, attempts, None)
    after = faster_knobs(job.knobs, last.asked)
    if after is None or not is_possible(job, attempts, checkpoints):
        because = f"no healthy checkpoint is newer than the fault: the same knobs again; {choice.because}"
        return Relaunch(None, last.asked, choice.checkpoint, because)
    because = f"{describe_step_back(job, attempts)}; {choice.because}"
    return Relaunch(None, after, choice.checkpoint, because, stepped_back=True)


def _fall_back(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting]) -> Relaunch:
    """Return to the knobs that cured the run."""
    fault = attempts[-1].fault
    assert fault is not None
    cured = next(each.asked for each in reversed(attempts) if each.outcome is Outcome.STOPPED and each.level_at is None)
    choice = choose_checkpoint(checkpoints, attempts, resume_limit(attempts, job.knobs))
    at = f" at step {fault.step}" if fault.step is not None else ""
    because = f"{fault.kind}{at} after stepping back: the knobs that had cured it again, for good; {choice.because}"
    return Relaunch(None, cured, choice.checkpoint, because)
