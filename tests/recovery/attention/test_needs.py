"""Tests what needs a person, and from when on people are told about it."""

from __future__ import annotations

from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import ENDED, JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.attention.needs import Need, NeedKind, find_needs, most_urgent_first, set_aside
from rung.recovery.nodes.bad_places import find_bad_places
from tests.support.places import died

FAULT = Fault(FaultKind.NAN_LOSS, "loss nan", step=3)


def job(state: JobState = JobState.RUNNING, reason: str = "why", settled: int = 0, **recovery: Any) -> Job:
    spec = JobSpec.model_validate({"name": "a", "run": "true", "recovery": recovery})
    return Job("a-1", spec, state, reason, created_at=100.0, updated_at=500.0, knobs=Knobs(), settled=settled)


def attempt(number: int = 1, **fields: Any) -> Attempt:
    known = {"host": "titan", "asked": Knobs(lr=0.1), "rung": None, "because": ""}
    return Attempt("a-1", number, **{**known, **fields})


def test_a_failed_job_needs_a_person_at_once_whatever_its_attempts_show() -> None:
    last = attempt(unreachable_since=400.0, hands="no torch")
    for attempts in ([], [last]):
        needs = find_needs(job(JobState.FAILED, "no rung was left"), attempts, {})
        assert needs == [Need("a-1", NeedKind.FAILED, "no rung was left", due=500.0)]


@pytest.mark.parametrize("state", [*sorted(ENDED - {JobState.FAILED}), JobState.QUEUED])
def test_nothing_is_needed_of_a_job_that_ended_well_or_waits_its_turn(state: JobState) -> None:
    """One that a person retries has attempts, and waits; what these needed is over."""
    assert find_needs(job(state), [attempt(unreachable_since=400.0, hands="no", fault=FAULT)], {1: 1.0}) == []


def test_a_job_that_runs_well_needs_nobody() -> None:
    assert find_needs(job(), [attempt(effective={"lr": 0.1}, hands="")], {}) == []
    assert find_needs(job(JobState.LAUNCHING), [], {}) == []


def test_a_host_that_is_away_is_shown_and_told_after_the_job_should_have_left_it() -> None:
    (need,) = find_needs(job(), [attempt(), attempt(2, unreachable_since=1000.0)], {})
    assert need == Need("a-1", NeedKind.HOST, "titan has not answered", 1000.0, due=1000.0 + 1800 + 300)
    (need,) = find_needs(job(host_lost_after=60), [attempt(unreachable_since=1000.0)], {})
    assert need.due == 1000.0 + 60 + 300
    assert find_needs(job(), [attempt(unreachable_since=1000.0), attempt(2)], {}) == []


def test_a_job_that_waits_for_a_host_is_told_after_half_an_hour() -> None:
    ended = attempt(fault=FAULT)
    (need,) = find_needs(job(JobState.RECOVERING, "its checkpoints are on titan"), [ended], {1: 1000.0})
    assert need == Need("a-1", NeedKind.HOST, "its checkpoints are on titan", due=2800.0)
    assert find_needs(job(JobState.RECOVERING), [ended], {}) == []
    assert find_needs(job(JobState.RECOVERING), [ended, attempt(2, fault=FAULT)], {1: 1000.0}) == []
    assert find_needs(job(), [ended], {1: 1000.0}) == [], "it goes on"


def test_knobs_that_did_not_take_are_shown_and_nobody_is_told() -> None:
    needs = find_needs(job(), [attempt(effective={"lr": 0.5}), attempt(2, effective={"lr": 0.5}, hands="no torch")], {})
    assert [need.why for need in needs] == [
        "lr asked 0.1, effective 0.5",
        "Rung cannot set knobs inside it: no torch",
    ]
    assert {(need.kind, need.due) for need in needs} == {(NeedKind.KNOBS, None)}


def test_a_ladder_near_its_end_is_shown_and_nobody_is_told() -> None:
    runs = [attempt(fault=FAULT), attempt(2, rung="fp32")]
    ladder = {"ladder": ["lower_lr", "fp32"]}
    assert find_needs(job(**ladder), runs, {}) == [Need("a-1", NeedKind.LADDER, "fp32 is the last rung of its ladder")]
    (need,) = find_needs(job(max_attempts=2), [attempt(fault=FAULT), attempt(2)], {})
    assert need.why == "this is launch 2, the last that max_attempts allows"
    assert find_needs(job(max_attempts=2), [attempt(), attempt(2)], {}) == [], "there was no fault"
    assert find_needs(job(settled=2, **ladder), [*runs, attempt(3)], {}) == [], "a person has retried it"


def test_the_most_urgent_comes_first_and_else_the_order_stays() -> None:
    needs = [Need(name, kind, "") for name in "ab" for kind in reversed(NeedKind)]
    found = most_urgent_first(needs)
    assert [need.kind for need in found] == [kind for kind in NeedKind for _ in "ab"]
    assert [need.job for need in found] == ["a", "b"] * len(NeedKind)


def test_a_gpu_that_is_set_aside_for_all_is_a_need_of_the_job_that_died_there_last() -> None:
    bad = find_bad_places([died("a-1", 100.0), died("b-2", 200.0), died("c-3", 300.0, gpus=(1,))], 400.0)
    why = "check turing's TITANRTX 0, then `rung hosts --clear turing`: after cuda_fault in 2 jobs it gets no job"
    assert set_aside(bad) == [Need("b-2", NeedKind.SET_ASIDE, why, 200.0)]
    assert set_aside([each for each in bad if each.until is None]) == []
