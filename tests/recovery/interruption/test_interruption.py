"""Tests what is decided about runs that their site has ended: they cost no budget while they make progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.engine import DOCKER, ENGINES, INTERRUPTIONS, EndedBy
from rung.jobs.model.fault import FaultKind
from rung.recovery.decide.checkpoint_choice import Unseen
from rung.recovery.decide.decide import Relaunch, Stop, Wait, decide
from rung.recovery.decide.incident import incident_after
from rung.recovery.interruption.interruption import IN_VAIN, decide_interruption, is_interruption, with_faults
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
    decision = decide_interruption(JOB, row(100), checkpoints, None)
    assert isinstance(decision, Relaunch) and decision.checkpoint == HEALTHY[-1]
    assert (decision.rung, decision.knobs, decision.delay) == (None, JOB.knobs, 0.0)
    assert decision.because.startswith("interrupted: it was preempted; the same knobs again, and no attempt is counted")


def test_an_attempt_that_was_not_interrupted_is_left_to_the_ladder() -> None:
    assert decide_interruption(JOB, [an_attempt(1, JOB.knobs, a_fault(FaultKind.NAN_LOSS))], HEALTHY, None) is None


def test_progress_costs_no_budget_however_often_a_run_is_interrupted() -> None:
    line = row(*range(0, 3000, 100))
    assert isinstance(decide_interruption(JOB, line, [a_checkpoint(3000)], None), Relaunch)
    incident = incident_after(line, JOB.knobs)
    assert (incident.infra_faults, incident.unbudgeted) == (0, len(line))
    # Nor does it take anything of the ladder's budget, which is 3 here.
    faulty = an_attempt(31, JOB.knobs, a_fault(FaultKind.NAN_LOSS, 3050))
    assert isinstance(decide(JOB, [*line, faulty], [a_checkpoint(3000)], None), Relaunch)


def test_several_in_a_row_without_progress_are_one_fault_of_the_machine() -> None:
    assert [each.fault for each in with_faults(row(300, 300), 300)] == [None, None]
    counted = with_faults(row(300, 300, 300, 300, 300, 300), 300)
    assert [each.number for each in counted if each.fault] == [IN_VAIN, 2 * IN_VAIN]
    assert counted[2].fault is not None and counted[2].fault.kind is FaultKind.INFRA_FAULT
    first = decide_interruption(JOB, row(300, 300, 300), HEALTHY, None)
    assert isinstance(first, Relaunch) and first.delay > 0 and "interrupted 3 times in a row" in first.because
    last = decide_interruption(JOB, row(300, 300, 300, 300, 300, 300), HEALTHY, None)
    assert isinstance(last, Stop) and "came 2 times" in last.diagnosis


@pytest.mark.parametrize(
    ("began", "newest", "faults"),
    [
        ((300, 300, 300), 400, 0),  # the last one saved something
        ((200, 200, 300), 300, 0),  # the one before it
        ((0, 0, 0), 0, 1),  # never a checkpoint
        ((300, 200, 100), 50, 1),  # each walks further back
    ],
)
def test_progress_is_a_newer_healthy_checkpoint_than_at_the_start(
    began: tuple[int, ...], newest: int, faults: int
) -> None:
    assert sum(each.fault is not None for each in with_faults(row(*began), newest)) == faults


def test_a_fault_between_ends_the_row() -> None:
    line = [*row(300, 300), an_attempt(3, JOB.knobs, a_fault(FaultKind.INFRA_FAULT), planned_step=300)]
    line += [interrupted(number, 300) for number in (4, 5)]
    assert [each.number for each in with_faults(line, 300) if each.fault] == [3]


def test_the_rung_of_an_interrupted_attempt_is_still_to_be_judged() -> None:
    line = [an_attempt(1, JOB.knobs, a_fault(FaultKind.NAN_LOSS)), interrupted(2, 0, rung="raise_clip")]
    assert incident_after(line, JOB.knobs).pending_rung == "raise_clip"


def test_nothing_is_counted_while_a_host_that_may_have_a_checkpoint_cannot_be_asked() -> None:
    away = Unseen("localhost", "no answer", saved=("step_400.pt",))
    assert isinstance(decide_interruption(JOB, row(0, 0, 0), [away], None), Wait)


@pytest.mark.parametrize("told", [True, False])
def test_the_advice_says_when_to_save(told: bool) -> None:
    site = replace(SITE, warns_before=INTERRUPTIONS if told else frozenset())
    (*_, last) = with_faults([replace(each, engine=site) for each in row(0, 0, 0)], 0)
    assert last.fault is not None
    assert ("at the signal" if told else "more often") in last.fault.evidence


@pytest.mark.parametrize(
    ("ended_by", "kind", "expected"),
    [
        (EndedBy.TIME_LIMIT, None, True),  # it saved and exited with 0
        (EndedBy.PREEMPTION, FaultKind.INFRA_FAULT, True),  # killed by SIGTERM
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
    assert is_interruption(ended_by, a_fault(kind) if kind else None) is expected


def test_no_engine_of_today_interrupts() -> None:
    assert not any(kind.ends & INTERRUPTIONS for kind in ENGINES.values())
