"""Makes trials for the tests of the pure floor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.trial import BEHIND, SURVIVED, Trial
from rung.recovery.decide.decide import Relaunch
from rung.recovery.trials.decide_trials import decide_with_trials, next_trial
from tests.support.jobs_in_trouble import a_fault, a_job, an_attempt

NAN = FaultKind.NAN_LOSS


def a_job_with_trials(**fields: Any) -> Job:
    recovery = {"trials": "on", **fields.pop("recovery", {})}
    return a_job(recovery=recovery, knobs={"precision": "amp_fp16", **fields.pop("knobs", {})}, **fields)


def faulty(job: Job, step: int = 50, kind: FaultKind = NAN, shape: str | None = "drift", **fields: Any) -> Attempt:
    """Return the first attempt of a job, which failed."""
    fault = a_fault(kind, step, shape=shape)
    seen = {"first_step": 1, "first_loss": 3.0, "progress_at": 100.0, **fields}
    return replace(an_attempt(1, job.knobs, fault), **seen)


def tried(decision: Relaunch, number: int, loss: float, fault: Fault | None = None, behind: bool = False) -> Attempt:
    """Return the attempt of a trial that has ended, with a loss that stays at one level."""
    trial = decision.trial
    assert trial is not None
    reached = fault.step if fault and fault.step is not None else trial.until
    readings = tuple((step, loss) for step in range(trial.start, reached + 1))
    verdict = BEHIND if behind else f"{fault.kind} at step {fault.step}" if fault else SURVIVED
    made = an_attempt(number, decision.knobs, fault, rung=decision.rung.value if decision.rung else None)
    ended = replace(trial, readings=readings, ms=5.0, verdict=verdict)
    return replace(made, trial=ended, furthest_step=reached, residence=number, exit_code=None)


def labels(trial: Trial) -> list[str]:
    return [each.label for each in trial.candidates]


JOB = a_job_with_trials(recovery={"trials": {"steps": 100}})
# The fault was seen long after the numbers went wrong, so that there is room for four trials.
FIRST = faulty(JOB, furthest_step=10_000)


def launched(*over: Attempt) -> Relaunch:
    """Return the launch of the first trial of this job, or of the next one after these."""
    attempts = [FIRST, *over]
    found = next_trial(JOB, attempts, None) if over else decide_with_trials(JOB, attempts, [], None)
    assert isinstance(found, Relaunch) and found.trial is not None
    return found
