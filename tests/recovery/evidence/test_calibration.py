"""Tests the calibration: each chance from the runs before it, compared with what came."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job, Outcome, Verdict
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Precision
from rung.jobs.model.trial import SURVIVED, Candidate, Trial
from rung.recovery.evidence.calibration import RANGES, Calibration, calibrate
from rung.recovery.ledger.chance import chance
from rung.recovery.ledger.ledger import DIAGNOSED, OPEN
from tests.support.jobs_in_trouble import a_fault, a_job, an_attempt

NAN = FaultKind.NAN_LOSS


def ran(
    day: int, verdict: Verdict | None = None, *, shape: str | None = None, **fields: Any
) -> tuple[Job, list[Attempt]]:
    """Return a job of one day: a fault at its time 150, and raise_clip until 250; failed if no verdict is given."""
    job = replace(a_job(**fields), id=f"job-{day}")
    knobs = job.knobs.but(clip=1.0)
    first = an_attempt(1, job.knobs, a_fault(NAN, shape=shape), by_person=True)
    fault = None if verdict else a_fault(NAN)
    second = an_attempt(2, knobs, fault, rung="raise_clip", verdict=verdict, effective=knobs.to_dict())
    return job, [_on(day, first), _on(day, second)]


def _on(day: int, attempt: Attempt) -> Attempt:
    assert attempt.started_at is not None and attempt.ended_at is not None
    return replace(attempt, started_at=attempt.started_at + 1000 * day, ended_at=attempt.ended_at + 1000 * day)


def test_each_chance_counts_only_the_runs_that_had_ended_before() -> None:
    jobs = [ran(3), ran(1, Verdict.RECOVERED), ran(2, Verdict.RECOVERED)]
    found = {each.job: each for each in calibrate(jobs).predictions}
    assert found["job-1"].chance == chance(OPEN, 0, 0)
    assert found["job-2"].chance == chance(OPEN, 1, 1)
    assert found["job-3"].chance == chance(OPEN, 2, 2)
    assert [found[f"job-{day}"].recovered for day in (1, 2, 3)] == [True, True, False]


def test_runs_that_end_while_another_begins_do_not_count_for_it() -> None:
    jobs = [ran(1, Verdict.RECOVERED), ran(1)]
    assert [each.chance.runs for each in calibrate(jobs).predictions] == [0, 0]


def test_the_rules_of_that_decision_are_the_prior() -> None:
    (diagnosed,) = calibrate([ran(1, shape="spike")]).predictions
    assert diagnosed.chance == chance(DIAGNOSED, 0, 0)
    (second,) = calibrate([ran(1, recovery={"ladder": ["lower_lr", "raise_clip"]})]).predictions
    assert second.chance == chance(OPEN * 0.9, 0, 0)


def test_a_rung_that_is_taken_again_in_a_job_counts_its_first_time() -> None:
    job, (first, second) = ran(1)
    delayed = replace(second, fault=a_fault(NAN, 200), furthest_step=200)
    tighter = job.knobs.but(clip=0.5)
    third = _on(1, an_attempt(3, tighter, None, rung="raise_clip", verdict=Verdict.RECOVERED))
    found = calibrate([(job, [first, delayed, third])]).predictions
    assert [(each.attempt, each.chance.runs, each.recovered) for each in found] == [(2, 0, False), (3, 1, True)]


def test_knobs_that_a_person_set_later_do_not_change_what_the_rules_said_then() -> None:
    """A step that is finite in FP32 shows the precision at fault, unless the run is in FP32 already."""
    job = a_job(knobs={"precision": "amp_fp16"})
    taken, wider = (job.knobs.but(precision=each) for each in (Precision.BF16, Precision.FP32))
    replay = {"weights": "finite", "inputs": "finite", "fp32": "finite"}
    first = an_attempt(1, job.knobs, a_fault(NAN, replay=replay), by_person=True)
    second = an_attempt(2, taken, a_fault(NAN), rung="bf16", effective=taken.to_dict())
    (found,) = calibrate([(replace(job, knobs=wider), [first, second])]).predictions
    assert found.chance == chance(DIAGNOSED, 0, 0)


def test_a_run_that_only_survived_counts_neither_way() -> None:
    found = calibrate([ran(1, Verdict.SURVIVED), ran(2, Verdict.RECOVERED)])
    assert found.not_known == 1 and [each.chance.runs for each in found.predictions] == [0]


def test_a_run_that_fell_short_did_not_recover() -> None:
    job, (first, second) = ran(1, Verdict.RECOVERED)
    (found,) = calibrate([(job, [first, replace(second, outcome=Outcome.FELL_SHORT)])]).predictions
    assert not found.recovered


def test_a_change_that_did_not_take_is_no_prediction() -> None:
    job, (first, second) = ran(1)
    found = calibrate([(job, [first, replace(second, effective={"clip": 5.0})])])
    assert found == Calibration()


def test_trials_that_were_lost_before_lower_the_chance_and_a_rung_that_won_is_told_apart() -> None:
    job, (first, second) = ran(1, Verdict.RECOVERED)
    candidates = (Candidate("raise_clip", second.asked), Candidate("lower_lr", job.knobs.but(lr=1e-4), 0.1))

    def trial(index: int, loss: float) -> Attempt:
        readings = tuple((step, loss) for step in range(200))
        about = Trial(1, index, candidates, 0, 100, 200, 400, readings=readings, verdict=SURVIVED, won=index == 0)
        made = an_attempt(index + 2, candidates[index].knobs, None, rung=candidates[index].rung)
        return _on(1, replace(made, trial=about, outcome=Outcome.STOPPED, furthest_step=200))

    with_trials = [first, trial(0, 1.0), trial(1, 2.0), _on(1, replace(second, number=4))]
    lower = job.knobs.but(lr=1e-4)
    later, (failed, _) = ran(2)
    lowered = _on(2, an_attempt(2, lower, a_fault(NAN), rung="lower_lr", effective=lower.to_dict()))
    by_trials, by_ladder = calibrate([(job, with_trials), (later, [failed, lowered])]).predictions
    assert (by_trials.by_trials, by_trials.recovered, by_trials.chance.runs) == (True, True, 0)
    assert (by_ladder.by_trials, by_ladder.chance) == (False, chance(OPEN * 0.9, 0, 1))


def test_a_rung_that_the_ladder_takes_after_trials_without_a_winner_did_not_win_them() -> None:
    job, (first, second) = ran(1)
    about = Trial(1, 0, (Candidate("lower_lr", job.knobs.but(lr=1e-4), 0.1),), 0, 100, 200, 400, verdict="a fault")
    failed = replace(an_attempt(2, job.knobs.but(lr=1e-4), a_fault(NAN), rung="lower_lr"), trial=about)
    (found,) = calibrate([(job, [first, _on(1, failed), replace(second, number=3)])]).predictions
    assert not found.by_trials


def test_the_groups_hold_what_was_predicted_against_what_came() -> None:
    found = calibrate([ran(1, Verdict.RECOVERED), ran(2, Verdict.RECOVERED), ran(3)])
    said, came = (0.5, 0.6, 2 / 3), (1, 1, 0)
    total = found.all
    assert total is not None and total.rungs == 3
    assert total.predicted == pytest.approx(sum(said) / 3) and total.recovered == pytest.approx(2 / 3)
    assert total.brier == pytest.approx(sum((a - b) ** 2 for a, b in zip(said, came, strict=True)) / 3)
    assert total.brier_of_mean == pytest.approx(2 / 9)
    assert [(low, high, group.rungs) for low, high, group in found.ranges()] == [(0.4, 0.6, 1), (0.6, 0.8, 2)]
    assert found.chosen(by_trials=True) is None


def test_every_chance_is_in_one_range() -> None:
    assert RANGES[0][0] == 0 and RANGES[-1][1] == 1
    assert [high for _, high in RANGES[:-1]] == [low for low, _ in RANGES[1:]]


def test_without_a_rung_there_is_nothing_to_compare() -> None:
    assert calibrate([]) == Calibration() and Calibration().all is None and Calibration().ranges() == []
