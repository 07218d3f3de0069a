"""Tests what is counted of a job: the same steps as the history counts, and nothing that may still be taken back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.job import Attempt, Outcome, main_line
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.trial import Candidate, Trial
from rung.runner.metrics.job_counts import RELAUNCH_BOUNDS, AttemptFacts, EventFacts, count_job
from rung.runner.views.costs import steps_lost

STEPS = st.none() | st.integers(0, 1000)
TRIALS = st.sampled_from([None, "runs", "lost", "won", "goes on"])


def facts(number: int = 1, outcome: str = "fault", trial: str | None = None, **fields: Any) -> AttemptFacts:
    names = ("rung", "ended_by", "after_fault", "fault", "furthest_step", "resumed_step", "planned_step", "first_step")
    values = {"by_person": number == 1, **dict.fromkeys(names), **fields}
    flags = {"trial": trial is not None, "won": trial in ("won", "goes on"), "goes_on": trial == "goes on"}
    return AttemptFacts(number=number, outcome=outcome, **flags, **values)


def as_attempt(given: AttemptFacts) -> Attempt:
    """Return the same as the history knows it."""
    trial = Trial(1, 0, (Candidate("lower_lr", Knobs()),), 0, 1, 2, 3, won=given.won, goes_on=given.goes_on)
    made = Attempt("a-1", given.number, "here", Knobs(), None, "", outcome=Outcome(given.outcome))
    steps = {name: getattr(given, name) for name in ("furthest_step", "resumed_step", "planned_step", "first_step")}
    return replace(made, trial=trial if given.trial else None, **steps)


@given(st.lists(st.tuples(STEPS, STEPS, STEPS, TRIALS), max_size=6))
def test_the_steps_lost_are_those_of_the_history_once_a_job_has_ended(rows: list[tuple[Any, ...]]) -> None:
    counted = [
        facts(number, furthest_step=furthest, resumed_step=resumed, planned_step=planned, trial=trial)
        for number, (furthest, resumed, planned, trial) in enumerate(rows, 1)
    ]
    attempts = [as_attempt(each) for each in counted]
    history = sum(
        steps_lost(each, next((other for other in main_line(attempts) if other.number > each.number), None), attempts)
        for each in attempts
    )
    ended = [EventFacts(1.0, "state", None, "FAILED")]
    assert count_job(counted, ended)[("steps_lost",)] == history


def test_steps_are_not_lost_before_the_next_run_has_said_where_it_resumed() -> None:
    first = facts(furthest_step=500)
    waiting = facts(2, "pending", planned_step=400)
    assert count_job([first, waiting], [])[("steps_lost",)] == 0
    assert count_job([first, replace(waiting, first_step=401)], [])[("steps_lost",)] == 100
    assert count_job([first, replace(waiting, resumed_step=0)], [])[("steps_lost",)] == 500


def test_a_trial_costs_steps_only_when_it_can_no_longer_win() -> None:
    first, trial = facts(furthest_step=500), facts(2, trial="lost", planned_step=400, furthest_step=450)
    assert count_job([first, trial], [])[("steps_lost",)] == 0
    after = facts(3, "pending", resumed_step=450)
    assert count_job([first, trial, after], [])[("steps_lost",)] == 50 + 50


def test_an_interruption_is_counted_once_and_what_goes_on_after_it_is_no_recovery() -> None:
    limit = {"ended_by": "time_limit"}
    first, second = facts(1, "interrupted", **limit), facts(2, "interrupted", **limit)
    events = [EventFacts(1.0, "interrupted", 1, None), EventFacts(2.0, "interrupted", 2, None)]
    assert count_job([first, second, facts(3, "pending")], events) == {("interruptions", "time_limit"): 2}
    # The second is found to be in vain: what was counted stays, and what comes after it is a recovery.
    blamed = replace(second, outcome="fault", fault="infra_fault")
    assert count_job([first, blamed, facts(3, "pending", after_fault="infra_fault")], events) == {
        ("interruptions", "time_limit"): 2,
        ("faults", "infra_fault"): 1,
        ("recoveries", "infra_fault", "none"): 1,
    }


def test_recoveries_are_counted_by_fault_and_rung_and_trials_apart() -> None:
    attempts = [
        facts(1, fault="nan_loss"),
        facts(2, trial="lost", rung="raise_clip", after_fault="nan_loss", fault="nan_loss"),
        facts(3, trial="goes on", rung="lower_lr", after_fault="nan_loss"),
        facts(4, after_fault="cuda_fault"),
    ]
    found = count_job(attempts, [])
    assert {key: value for key, value in found.items() if key[0] != "steps_lost"} == {
        ("faults", "nan_loss"): 1,
        ("trials", "raise_clip"): 1,
        ("trials", "lower_lr"): 1,
        ("trials_won", "lower_lr"): 1,
        ("recoveries", "nan_loss", "lower_lr"): 1,
        ("recoveries", "cuda_fault", "none"): 1,
    }


def relaunches(*events: EventFacts, attempts: tuple[AttemptFacts, ...] = ()) -> dict[str, int]:
    return {key[1]: value for key, value in count_job(attempts, events).items() if key[0] == "relaunch"}


def test_a_relaunch_is_timed_from_the_fault_to_the_next_start() -> None:
    fault, start = EventFacts(100.0, "fault", 1, None), EventFacts(103.0, "started", 2, None)
    assert relaunches(EventFacts(90.0, "started", 1, None), fault, start) == {"2": 1}
    assert RELAUNCH_BOUNDS[1] < 3.0 <= RELAUNCH_BOUNDS[2]
    assert count_job((), [fault, start])[("relaunch_ms",)] == 3000
    # The clock was set back.
    assert relaunches(fault, replace(start, at=5.0)) == {"0": 1}


def test_what_a_person_begins_and_what_a_trial_meets_is_no_relaunch() -> None:
    fault, start = EventFacts(100.0, "fault", 1, None), EventFacts(9e9, "started", 2, None)
    assert relaunches(fault, EventFacts(101.0, "retried", None, None), start) == {}
    assert relaunches(fault, start, attempts=(facts(1, trial="lost"),)) == {}
    assert relaunches(fault, start) == {str(len(RELAUNCH_BOUNDS)): 1}


def test_events_are_counted_by_kind_and_by_the_state_they_lead_to() -> None:
    kinds = [("state", "RUNNING"), ("state", "FAILED"), ("retried", None), ("state", "SUCCEEDED"), ("recovered", None)]
    found = count_job((), [EventFacts(1.0, kind, None, to) for kind, to in kinds])
    assert found == Counter({("ended", "FAILED"): 1, ("ended", "SUCCEEDED"): 1, ("verdicts", "recovered"): 1})
