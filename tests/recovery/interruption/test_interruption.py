"""Tests what is decided about runs that their site has ended: they cost no budget while they make progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Outcome, recoveries
from rung.jobs.model.engine import DOCKER, INTERRUPTIONS, EndedBy
from rung.jobs.model.fault import Fault, FaultKind
from rung.recovery.decide.checkpoint_choice import Unseen
from rung.recovery.decide.decide import Relaunch, Wait, decide
from rung.recovery.decide.incident import incident_after
from rung.recovery.interruption.interruption import IN_VAIN, decide_interruption, fault_of_trial, is_interruption
from tests.support.jobs_in_trouble import a_checkpoint, a_fault, a_job, an_attempt

JOB = a_job(recovery={"trials": "off", "max_attempts": 3, "infra_retries": 1})
SITE = replace(DOCKER, name="site", ends=frozenset(EndedBy))
HEALTHY = [a_checkpoint(step) for step in (100, 200, 300)]


def interrupted(number: int, began: int, **fields: Any) -> Attempt:
    """Return an attempt that began at a step and that its site has ended."""
    known = {"engine": SITE, "ended_by": EndedBy.PREEMPTION, "planned_step": began or None, **fields}
    return replace(an_attempt(number, JOB.knobs, None, **known), outcome=Outcome.INTERRUPTED)


def row(*began: int) -> list[Attempt]:
    return [interrupted(number, step) for number, step in enumerate(began, 1)]


def test_an_interrupted_run_goes_on_from_its_newest_healthy_checkpoint_at_once() -> None:
    checkpoints = [*HEALTHY, a_checkpoint(400, "nonfinite")]
    decision = decide_interruption(JOB, row(100), checkpoints)
    assert isinstance(decision, Relaunch) and decision.checkpoint == HEALTHY[-1]
    assert (decision.rung, decision.knobs, decision.delay) == (None, JOB.knobs, 0.0)
    assert decision.because.startswith("interrupted: it was preempted; goes on from step 300: ")


def test_a_run_without_a_checkpoint_begins_again_and_says_so() -> None:
    decision = decide_interruption(JOB, [interrupted(1, 0, ended_by=EndedBy.TIME_LIMIT)], [])
    assert isinstance(decision, Relaunch) and decision.checkpoint is None
    assert decision.because.startswith("interrupted: its time limit was reached; begins again from scratch: ")


def test_what_its_trials_have_shown_still_holds() -> None:
    decision = decide_interruption(JOB, [interrupted(1, 100, tried_until=350)], HEALTHY)
    assert isinstance(decision, Relaunch) and decision.tried_until == 350


def test_an_attempt_that_was_not_interrupted_is_left_to_the_ladder() -> None:
    assert decide_interruption(JOB, [an_attempt(1, JOB.knobs, a_fault(FaultKind.NAN_LOSS))], HEALTHY) is None


def test_progress_costs_no_budget_however_often_a_run_is_interrupted() -> None:
    line = row(*range(0, 3000, 100))
    assert isinstance(decide_interruption(JOB, line, [a_checkpoint(3000)]), Relaunch)
    incident = incident_after(line, JOB.knobs)
    assert (incident.infra_faults, incident.unbudgeted) == (0, len(line))
    # Nor does it take anything of the ladder's budget, which is 3 here.
    faulty = an_attempt(31, JOB.knobs, a_fault(FaultKind.NAN_LOSS, 3050))
    assert isinstance(decide(JOB, [*line, faulty], [a_checkpoint(3000)], None), Relaunch)


@pytest.mark.parametrize(
    ("began", "newest", "in_vain"),
    [
        ((300, 300), 300, False),
        ((300, 300, 300), 300, True),
        ((300, 300, 300), 400, False),  # the last one saved something
        ((200, 200, 300), 300, False),  # the one before it
        ((0, 0, 0), 0, True),  # never a checkpoint
        ((300, 200, 100), 50, True),  # each walks further back
    ],
)
def test_three_in_a_row_without_a_newer_healthy_checkpoint_than_at_the_start_are_a_fault_of_the_machine(
    began: tuple[int, ...], newest: int, in_vain: bool
) -> None:
    found = decide_interruption(JOB, row(*began), [a_checkpoint(newest)] if newest else [])
    assert isinstance(found, Fault) is in_vain
    if isinstance(found, Fault):
        assert found.kind is FaultKind.INFRA_FAULT and f"interrupted {IN_VAIN} times in a row" in found.note


def test_a_fault_between_ends_the_row() -> None:
    line = [*row(300, 300), an_attempt(3, JOB.knobs, a_fault(FaultKind.INFRA_FAULT), planned_step=300)]
    line += [interrupted(number, 300) for number in (4, 5)]
    assert isinstance(decide_interruption(JOB, line, HEALTHY), Relaunch)
    assert isinstance(decide_interruption(JOB, [*line, interrupted(6, 300)], HEALTHY), Fault)


def test_the_rung_of_an_interrupted_attempt_is_still_to_be_judged() -> None:
    line = [an_attempt(1, JOB.knobs, a_fault(FaultKind.NAN_LOSS)), interrupted(2, 0, rung="raise_clip")]
    assert incident_after(line, JOB.knobs).pending_rung == "raise_clip"


def test_nothing_is_counted_while_a_host_that_may_have_a_checkpoint_cannot_be_asked() -> None:
    away = Unseen("localhost", "no answer", saved=("step_400.pt",))
    assert isinstance(decide_interruption(JOB, row(0, 0, 0), [away]), Wait)


@pytest.mark.parametrize("told", [True, False])
def test_the_advice_says_when_to_save(told: bool) -> None:
    site = replace(SITE, warns_before=INTERRUPTIONS if told else frozenset())
    found = decide_interruption(JOB, [replace(each, engine=site) for each in row(0, 0, 0)], [])
    assert isinstance(found, Fault)
    assert ("at the signal" if told else "more often") in found.note


@pytest.mark.parametrize(
    ("ended_by", "kind", "expected"),
    [
        (EndedBy.TIME_LIMIT, None, True),  # it saved and exited with 0
        (EndedBy.PREEMPTION, FaultKind.INFRA_FAULT, True),  # killed by SIGTERM
        (EndedBy.TIME_LIMIT, FaultKind.COMM_FAULT, True),  # the first rank saved and ended, so another lost it
        (EndedBy.PREEMPTION, FaultKind.UNKNOWN_EXIT, True),
        (EndedBy.TIME_LIMIT, FaultKind.NAN_LOSS, False),  # its numbers were bad before
        (EndedBy.NODE_FAILURE, FaultKind.INFRA_FAULT, False),
        (EndedBy.OUT_OF_MEMORY, FaultKind.OOM, False),
        (None, None, False),
    ],
)
def test_only_a_time_limit_and_a_preemption_interrupt(
    ended_by: EndedBy | None, kind: FaultKind | None, expected: bool
) -> None:
    attempt = an_attempt(1, JOB.knobs, None, ended_by=ended_by)
    assert is_interruption(attempt, a_fault(kind) if kind else None) is expected


@pytest.mark.parametrize(("furthest", "code", "expected"), [(99, 0, True), (100, 1, True), (100, 0, False)])
def test_a_run_that_has_made_its_last_step_has_finished_whatever_its_site_says(
    furthest: int, code: int, expected: bool
) -> None:
    known = {"ended_by": EndedBy.TIME_LIMIT, "exit_code": code, "furthest_step": furthest, "total_steps": 100}
    assert is_interruption(replace(an_attempt(1, JOB.knobs, None), **known), None) is expected


def test_an_interrupted_trial_says_nothing_about_its_candidate_and_is_run_again() -> None:
    fault = fault_of_trial(interrupted(2, 0))
    assert (fault.kind, fault.evidence) == (FaultKind.INFRA_FAULT, "interrupted: it was preempted")


def test_only_what_follows_no_interruption_is_a_recovery() -> None:
    first = replace(interrupted(1, 0), by_person=True)
    faulty = an_attempt(3, JOB.knobs, a_fault(FaultKind.NAN_LOSS))
    line = [first, interrupted(2, 100), faulty, an_attempt(4, JOB.knobs, None, rung="lower_lr")]
    assert [each.number for each in recoveries(line)] == [4]
