"""Tests the plan of trials: which candidates, over which steps, and when there are none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.trial import Trial
from rung.recovery.decide.decide import Relaunch, Stop
from rung.recovery.trials.decide_trials import decide_with_trials
from tests.support.jobs_in_trouble import a_checkpoint, a_job, an_attempt
from tests.support.trials_in_memory import a_job_with_trials, faulty, labels

F = FaultKind


def decided(job: Job, *attempts: Attempt, checkpoints: Any = ()) -> Relaunch:
    found = decide_with_trials(job, attempts, checkpoints, None)
    assert isinstance(found, Relaunch)
    return found


def planned(job: Job, *attempts: Attempt, checkpoints: Any = ()) -> Trial:
    trial = decided(job, *attempts, checkpoints=checkpoints).trial
    assert trial is not None
    return trial


def test_the_most_likely_candidate_runs_last_and_a_lower_lr_before_a_higher_one() -> None:
    job = a_job_with_trials()
    assert labels(planned(job, faulty(job))) == ["fp32", "raise_clip", "lower_lr x0.01", "lower_lr x0.1"]
    spike = faulty(job, shape="spike")
    assert labels(planned(job, spike)) == ["fp32", "lower_lr x0.01", "lower_lr x0.1", "raise_clip"]


def test_all_candidates_have_the_same_start_and_window_beyond_the_fault() -> None:
    job = a_job_with_trials()
    trial = planned(job, faulty(job, 50))
    assert (trial.start, trial.fault_step, trial.until) == (0, 50, 150)
    assert {each.knobs.lr for each in trial.candidates} == {1e-3, 1e-4, 1e-5}


def test_a_long_run_gets_longer_trials_within_its_share() -> None:
    job = a_job_with_trials(recovery={"trials": {"cost": "10%"}})
    spike = faulty(job, 20_000, shape="spike")
    trial = planned(job, spike, checkpoints=[a_checkpoint(19_900)])
    assert (trial.start, trial.until - trial.fault_step, trial.bound) == (19_900, 300, 2000)


def test_where_the_length_of_the_run_is_known_the_share_is_of_the_steps_that_are_left() -> None:
    job = a_job_with_trials(recovery={"trials": {"cost": "10%"}})
    bounds = [planned(job, faulty(job, 50, total_steps=total)).bound for total in (None, 20_050, 1000, 40)]
    # Of few steps, 100 per candidate are always allowed.
    assert bounds == [400, 2000, 400, 400]


def test_fewer_candidates_where_the_way_to_the_fault_is_long() -> None:
    job = a_job_with_trials()
    assert labels(planned(job, faulty(job, 200, shape="spike"))) == ["lower_lr x0.01", "lower_lr x0.1", "raise_clip"]
    assert labels(planned(job, faulty(job, 600, shape="spike"))) == ["lower_lr x0.1", "raise_clip"]
    too_far = decided(job, faulty(job, 3000, shape="spike"))
    assert too_far.trial is None and too_far.rung == "raise_clip"
    assert "no trials: each would take 3100 steps, and they may take 400 together" in too_far.because


@pytest.mark.parametrize("kind", [F.FP16_OVERFLOW, F.UNSCALE_ERROR, F.SCALE_THRASH, F.INFRA_FAULT, F.UNKNOWN_EXIT])
def test_a_fault_whose_cause_is_proven_or_is_not_numeric_needs_no_trials(kind: FaultKind) -> None:
    job = a_job_with_trials(knobs={"growth_interval": 1})
    assert decided(job, faulty(job, kind=kind, shape=None)).trial is None


def test_a_replay_proves_the_precision_only_in_a_run_that_was_learning() -> None:
    """With 0.1.0 a GPT with too high an lr went to FP32: the failing step was finite there, after a loss long flat."""
    job = a_job_with_trials()
    replayed = {"weights": "finite", "inputs": "finite", "fp32": "finite", "step": "300"}
    for was_falling in (True, False):
        one = faulty(job, 300, shape=None, was_falling=was_falling)
        assert one.fault is not None
        one = replace(one, fault=replace(one.fault, replay=replayed))
        decision = decided(job, one, checkpoints=[a_checkpoint(290)])
        assert (decision.trial is None) is was_falling
        if was_falling:
            assert decision.rung == "fp32" and "the cause is proven, so no trials" in decision.because


def test_there_are_no_trials_without_a_loss_to_compare_or_a_folder_of_their_own() -> None:
    job = a_job_with_trials()
    silent = decided(job, replace(faulty(job), first_loss=None))
    assert silent.trial is None and "no loss or no step was seen" in silent.because
    shared = a_job_with_trials(checkpoint={"dir": "/data/checkpoints"})
    there = decided(shared, faulty(shared))
    assert there.trial is None and "checkpoint.dir is an absolute path" in there.because


def test_without_trials_a_job_gets_the_rung_of_the_rules_and_no_word_about_trials() -> None:
    job = a_job()
    found = decided(job, faulty(job))
    assert found.trial is None and found.rung == "lower_lr" and "trial" not in found.because


def test_one_candidate_is_no_choice() -> None:
    job = a_job_with_trials(recovery={"ladder": ["fp32"]})
    assert "it is the only rung that can be tried" in decided(job, faulty(job)).because


def test_a_jump_of_a_run_that_was_well_is_compared_with_the_run_as_it_is() -> None:
    job = a_job_with_trials()
    jumped = faulty(job, 500, F.DIVERGENCE, "spike", healthy_loss=1.0)
    assert labels(planned(job, jumped, checkpoints=[a_checkpoint(490)]))[0] == "as it is"
    from_the_start = faulty(job, 50, F.DIVERGENCE)
    assert "as it is" not in labels(planned(job, from_the_start))


def test_a_verdict_that_no_rung_helps_stands_without_trials() -> None:
    job = a_job_with_trials()
    one = faulty(job, 300, shape=None)
    assert one.fault is not None
    replay = {"weights": "finite", "inputs": "finite", "fp32": "nonfinite", "step": "10"}
    early = faulty(job, 10, shape=None)
    assert early.fault is not None
    bug = replace(early, fault=replace(early.fault, replay=replay))
    assert decided(job, bug).rung == "lower_lr" and decided(job, bug).trial is None
    replay = {"weights": "finite", "inputs": "nonfinite", "step": "300"}
    bad_data = replace(one, fault=replace(one.fault, replay=replay))
    assert isinstance(decide_with_trials(job, [bad_data], [], None), Stop)


def test_the_values_of_the_job_file_bound_the_trials() -> None:
    job = a_job_with_trials(recovery={"trials": {"candidates": 2, "steps": 150}})
    trial = planned(job, faulty(job, 20))
    assert len(trial.candidates) == 2 and trial.until == 170


def test_a_ladder_with_its_own_factor_is_tried_once() -> None:
    job = a_job_with_trials(recovery={"ladder": [{"lower_lr": [0.5]}, "fp32"]})
    assert labels(planned(job, faulty(job))) == ["fp32", "lower_lr x0.5"]


def test_trials_count_against_no_budget() -> None:
    job = a_job_with_trials(recovery={"max_attempts": 3, "trials": {"steps": 100}})
    first = faulty(job)
    trial = planned(job, first)
    trials = [replace(an_attempt(number, job.knobs, None), trial=trial, residence=number) for number in range(2, 6)]
    won = replace(faulty(job, 800, shape="spike"), number=6, rung="lower_lr", asked=job.knobs.but(lr=1e-4))
    assert decided(job, first, *trials, won).rung is not None
    again = replace(faulty(job, 2000, shape="spike"), number=7, rung="raise_clip", asked=won.asked.but(clip=1.0))
    stopped = decide_with_trials(job, [first, *trials, won, again], [], None)
    assert isinstance(stopped, Stop) and "3 attempts made" in stopped.diagnosis
