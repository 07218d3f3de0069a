"""Tests which jobs of a group wait: never more run than the group may run, whatever their states."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.job import Job
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import ENDED, JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.placement.group_limit import held_back
from rung.runner.state.group_rows import Membership

ACTIVE = [state for state in JobState if state not in ENDED]


def job(name: str, state: JobState = JobState.QUEUED, priority: int = 0) -> Job:
    return Job(name, JobSpec(name=name, run=("x",), priority=priority), state, "", 1.0, 1.0, Knobs())


def members(jobs: list[Job], at_once: int | None, group: str = "g") -> dict[str, Membership]:
    return {each.id: Membership(group, at_once, {}) for each in jobs}


@given(st.lists(st.sampled_from(ACTIVE), max_size=8), st.integers(1, 4))
def test_as_many_go_as_the_group_may_run_and_the_rest_waits(states: list[JobState], at_once: int) -> None:
    jobs = [job(str(number), state) for number, state in enumerate(states)]
    held = held_back(jobs, members(jobs, at_once))
    running = sum(state is not JobState.QUEUED for state in states)
    queued = [each.id for each in jobs if each.state is JobState.QUEUED]
    free = max(0, at_once - running)
    assert list(held) == queued[free:]
    assert set(held.values()) <= {f"waits for its group g: {running} of at most {at_once} run"}


def test_a_group_without_a_limit_and_a_job_without_a_group_wait_for_nobody() -> None:
    jobs = [job("a"), job("b")]
    assert held_back(jobs, members(jobs, None)) == {} and held_back(jobs, {}) == {}


def test_the_highest_priority_goes_first() -> None:
    jobs = [job("low"), job("high", priority=5)]
    assert list(held_back(jobs, members(jobs, 1))) == ["low"]


def test_groups_do_not_wait_for_each_other() -> None:
    ours, theirs = [job("a", JobState.RUNNING), job("b")], [job("c")]
    groups = members(ours, 1) | members(theirs, 1, "h")
    assert list(held_back([*ours, *theirs], groups)) == ["b"]


def test_a_job_that_is_cancelled_or_cannot_be_launched_takes_no_place() -> None:
    jobs = [replace(job("a"), cancel_requested=True), replace(job("b"), refused="an old volume"), job("c"), job("d")]
    assert list(held_back(jobs, members(jobs, 1))) == ["d"]
