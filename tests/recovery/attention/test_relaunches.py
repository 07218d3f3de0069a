"""Tests which jobs that were relaunched count as recovered, and what is said about the others."""

from __future__ import annotations

from typing import Any

import pytest

from rung.jobs.job import Attempt, Job, Outcome, Verdict
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.attention.relaunches import NOT_KNOWN, has_recovered, what_shows_it

FAULT = Fault(FaultKind.NAN_LOSS, "loss nan", step=3)
FALLS = {"verdict": Verdict.RECOVERED, "verdict_why": "the loss falls"}


def job(state: JobState = JobState.RUNNING, settled: int = 0) -> Job:
    spec = JobSpec.model_validate({"name": "a", "run": "true"})
    return Job("a-1", spec, state, "why", created_at=1.0, updated_at=5.0, knobs=Knobs(), settled=settled)


def attempt(number: int, **fields: Any) -> Attempt:
    first = number == 1
    known = {"by_person": first, "fault": FAULT if first else None, "after_fault": None if first else "nan_loss"}
    return Attempt("a-1", number, "titan", Knobs(), None, "", **{**known, **fields})


def test_a_job_that_learns_again_has_recovered_and_the_readings_show_it() -> None:
    runs = [attempt(1), attempt(2, **FALLS)]
    for state in (JobState.RUNNING, JobState.SUCCEEDED, JobState.CANCELLED):
        assert has_recovered(job(state), runs)
        assert what_shows_it(job(state), runs) == "the loss falls"


def test_one_that_was_relaunched_and_then_failed_has_not_whatever_was_said_of_it_before() -> None:
    assert not has_recovered(job(JobState.FAILED), [attempt(1), attempt(2)])
    lost = [attempt(1), attempt(2, **FALLS)]
    assert not has_recovered(job(JobState.FAILED), lost) and what_shows_it(job(JobState.FAILED), lost) == ""
    relapsed = [attempt(1), attempt(2, fault=FAULT, **FALLS)]
    for state in (JobState.RECOVERING, JobState.FAILED):
        assert not has_recovered(job(state), relapsed)
    assert what_shows_it(job(JobState.RECOVERING), relapsed) == NOT_KNOWN
    assert what_shows_it(job(JobState.FAILED), relapsed) == ""


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.LAUNCHING])
def test_too_early_is_not_recovered(state: JobState) -> None:
    runs = [attempt(1), attempt(2)]
    assert not has_recovered(job(state), runs) and what_shows_it(job(state), runs) == NOT_KNOWN


@pytest.mark.parametrize("word", [Verdict.SURVIVED, Verdict.NOT_LEARNING])
def test_the_other_words_about_a_run_are_not_recovered(word: Verdict) -> None:
    runs = [attempt(1), attempt(2, verdict=word, verdict_why="of some readings")]
    assert not has_recovered(job(JobState.SUCCEEDED), runs)
    assert what_shows_it(job(JobState.SUCCEEDED), runs) == f"{word.replace('_', ' ')}: of some readings"


def test_one_whose_loss_nobody_had_to_judge_has_recovered_when_it_has_finished() -> None:
    """As after a fault of the machine."""
    runs = [attempt(1), attempt(2, outcome=Outcome.SUCCEEDED)]
    assert has_recovered(job(JobState.SUCCEEDED), runs)
    assert what_shows_it(job(JobState.SUCCEEDED), runs) == ""


def test_what_a_person_retried_is_not_what_a_rung_recovered() -> None:
    retried = [attempt(1), attempt(2, fault=FAULT), attempt(3, by_person=True, after_fault="nan_loss")]
    assert not has_recovered(job(JobState.SUCCEEDED, settled=2), retried)
    assert has_recovered(job(JobState.SUCCEEDED, settled=2), [*retried[:2], attempt(3, by_person=True), attempt(4)])


def test_a_trial_is_no_run_of_the_job() -> None:
    trial = Trial(1, 0, (Candidate("lower_lr", Knobs(), 0.1),), 0, 3, 9, 5)
    runs = [attempt(1), attempt(2, **FALLS), attempt(3, trial=trial, fault=FAULT)]
    assert has_recovered(job(), runs)
    assert not has_recovered(job(), [attempt(1, fault=None)]) and not has_recovered(job(), [])
