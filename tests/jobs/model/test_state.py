"""Tests that a job changes state only by the table of transitions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from rung.jobs.job import Job, advance
from rung.jobs.model.errors import RungError, TransitionError
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import ENDED, TRANSITIONS, JobState
from rung.jobs.spec.job_spec import JobSpec

S = JobState
# A second copy on purpose, so that nobody changes the table by accident.
ARROWS = {
    ("QUEUED", "LAUNCHING"), ("QUEUED", "FAILED"), ("QUEUED", "CANCELLED"),
    ("LAUNCHING", "RUNNING"), ("LAUNCHING", "RECOVERING"), ("LAUNCHING", "STOPPING"), ("LAUNCHING", "SUCCEEDED"),
    ("LAUNCHING", "FAILED"),
    ("RUNNING", "RECOVERING"), ("RUNNING", "STOPPING"), ("RUNNING", "SUCCEEDED"), ("RUNNING", "FAILED"),
    ("STOPPING", "RECOVERING"), ("STOPPING", "SUCCEEDED"), ("STOPPING", "FAILED"), ("STOPPING", "CANCELLED"),
    ("RECOVERING", "LAUNCHING"), ("RECOVERING", "FAILED"), ("RECOVERING", "CANCELLED"),
    ("FAILED", "QUEUED"), ("CANCELLED", "QUEUED"),
}  # fmt: skip


def a_job(state: JobState) -> Job:
    spec = JobSpec(name="a", run=("true",))
    return Job("a-1", spec, state, "before", 1.0, 1.0, Knobs(), settled=2, cancel_requested=True)


@pytest.mark.parametrize(("before", "to"), list(product(S, S)), ids=lambda state: state.value)
def test_advance_allows_exactly_the_pairs_of_the_table(before: JobState, to: JobState) -> None:
    job = a_job(before)
    if (before.value, to.value) in ARROWS:
        assert to in TRANSITIONS[before]
        assert advance(job, to, reason="why", at=5.0) == replace(job, state=to, reason="why", updated_at=5.0)
    else:
        with pytest.raises(TransitionError, match=f"a-1: {before} -> {to} .*why"):
            advance(job, to, reason="why", at=5.0)


def test_the_table_contains_every_state() -> None:
    assert set(TRANSITIONS) == set(S)


def test_every_state_can_be_reached_from_queued() -> None:
    reached, fresh = {S.QUEUED}, {S.QUEUED}
    while fresh:
        fresh = {to for state in fresh for to in TRANSITIONS[state]} - reached
        reached |= fresh
    assert reached == set(S)


@pytest.mark.parametrize("state", list(S))
def test_every_state_leads_to_an_end(state: JobState) -> None:
    reached, fresh = {state}, {state}
    while fresh:
        fresh = {to for each in fresh for to in TRANSITIONS[each]} - reached
        reached |= fresh
    assert reached & ENDED


def test_only_a_person_can_leave_an_ended_state() -> None:
    assert {S.SUCCEEDED, S.FAILED, S.CANCELLED} == ENDED
    assert all(TRANSITIONS[state] <= {S.QUEUED} for state in ENDED)
    assert [state for state in S if a_job(state).ended] == [S.SUCCEEDED, S.FAILED, S.CANCELLED]


def test_running_is_entered_only_from_launching() -> None:
    assert [state for state in S if S.RUNNING in TRANSITIONS[state]] == [S.LAUNCHING]


def test_a_wrong_transition_raises_a_rung_error() -> None:
    assert issubclass(TransitionError, RungError)
