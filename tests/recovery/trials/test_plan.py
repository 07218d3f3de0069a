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


def test_the_most_likely_candidate_is_listed_first_and_runs_second() -> None:
    job = a_job_with_trials()
    drift = planned(job, faulty(job, 20))
    assert labels(drift) == ["lower_lr x0.1", "lower_lr x0.01", "raise_clip", "fp32"]
    assert drift.candidate.label == "lower_lr x0.01"
    spike = planned(job, faulty(job, 20, shape="spike"))
    assert labels(spike) == ["raise_clip", "lower_lr x0.1", "lower_lr x0.01", "fp32"]
    assert spike.candidate.label == "lower_lr x0.1"


def test_without_a_diagnosis_a_run_that_has_learned_nothing_lowers_its_lr_first() -> None:
    job = a_job_with_trials()
    unlearned = faulty(job, shape=None)
    assert labels(planned(job, unlearned))[:2] == ["lower_lr x0.1", "lower_lr x0.01"]
    assert labels(planned(job, replace(unlearned, healthy_loss=1.0)))[0] == "raise_clip"


def test_an_lr_that_trials_have_chosen_is_lowered_to_three_tenths_too() -> None:
    job = a_job_with_trials()
    first = faulty(job, 20)
    trial = planned(job, first)
    assert trial.candidate.label == "lower_lr x0.01"
    lowered = an_attempt(2, trial.candidate.knobs, None, rung="lower_lr")
    won = replace(lowered, trial=replace(trial, verdict="survived", won=True), residence=2)
    later = replace(faulty(job, 250), number=3, rung="lower_lr", asked=trial.candidate.knobs)
    found = planned(job, first, won, later)
    assert labels(found) == ["lower_lr x0.3", "lower_lr x0.1"]
    assert found.candidate.label == "lower_lr x0.1"
    assert found.candidates[0].knobs.lr == pytest.approx(0.3 * (trial.candidate.knobs.lr or 0))
    # One that has not won its trials, or another lr than the one that has.
    lost = replace(won, trial=replace(trial, verdict="survived"))
    other = replace(later, asked=later.asked.but(lr=5e-4))
    for attempts in ((first, lost, later), (first, won, other)):
        assert labels(planned(job, *attempts))[:2] == ["lower_lr x0.1", "lower_lr x0.01"]


def test_the_trials_of_a_fault_in_the_first_steps_begin_from_scratch() -> None:
    """A checkpoint of a small GPT from before its fault held Adam's state after an enormous gradient."""
    job = a_job_with_trials()
    early = decided(job, faulty(job, 150, shape="spike"), checkpoints=[a_checkpoint(100)])
    assert early.trial is not None and (early.checkpoint, early.trial.start) == (None, 0)
    late = decided(job, faulty(job, 250, shape="spike"), checkpoints=[a_checkpoint(200)])
    assert late.trial is not None and (late.checkpoint, late.trial.start) == (a_checkpoint(200), 200)


def test_the_goal_is_the_level_before_the_fault_or_one_below_the_untrained_model() -> None:
    job = a_job_with_trials()
    assert planned(job, faulty(job, first_loss=3.0)).goal == pytest.approx(2.94)
    assert planned(job, faulty(job, first_loss=3.0, healthy_loss=1.0)).goal == pytest.approx(1.02)
    assert planned(job, faulty(job, first_loss=None)).goal is None


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
    assert labels(planned(job, faulty(job, 100, shape="spike"))) == ["raise_clip", "lower_lr x0.1", "lower_lr x0.01"]
    assert labels(planned(job, faulty(job, 300, shape="spike"))) == ["raise_clip", "lower_lr x0.1"]
    too_far = decided(job, faulty(job, 3000, shape="spike"))
    assert too_far.trial is None and too_far.rung == "raise_clip"
    assert "no trials: each would take 3100 steps, and they may take 400 together" in too_far.because


@pytest.mark.parametrize("kind", [F.FP16_OVERFLOW, F.UNSCALE_ERROR, F.SCALE_THRASH, F.INFRA_FAULT, F.UNKNOWN_EXIT])
def test_a_fault_whose_cause_is_proven_or_is_not_numeric_needs_no_trials(kind: FaultKind) -> None:
    job = a_job_with_trials(knobs={"growth_interval": 1})
    assert decided(job, faulty(job, kind=kind, shape=None)).trial is None


def test_a_replay_proves_the_precision_unless_the_run_had_stopped_learning() -> None:
    """With 0.1.0 a GPT with too high an lr went to FP32: the failing step was finite there, after a loss long flat."""
    job = a_job_with_trials()
    replayed = {"weights": "finite", "inputs": "finite", "fp32": "finite", "step": "300"}
    # None: too few losses were seen to tell.
    for was_falling in (True, None, False):
        one = faulty(job, 300, shape=None, was_falling=was_falling)
        assert one.fault is not None
        one = replace(one, fault=replace(one.fault, replay=replayed))
        decision = decided(job, one, checkpoints=[a_checkpoint(290)])
        assert (decision.trial is None) is (was_falling is not False)
        if was_falling is not False:
            assert decision.rung == "bf16" and "the cause is proven, so no trials" in decision.because


@pytest.mark.parametrize(("cure", "rung"), [({}, "bf16"), ({"cure": "fp32_modules:head"}, "fp32_modules")])
def test_the_steps_to_fp32_are_one_candidate_so_that_the_lr_is_tried_too(cure: dict[str, str], rung: str) -> None:
    replay = {"weights": "finite", "inputs": "finite", "fp32": "finite", "step": "100", **cure}
    for ladder in ({}, {"ladder": ["raise_clip", "lower_lr", "fp32_modules", "bf16", "fp32"]}):
        job = a_job_with_trials(recovery={"trials": "on", **ladder})
        one = faulty(job, 100, shape=None, was_falling=False)
        assert one.fault is not None
        one = replace(one, fault=replace(one.fault, replay=replay))
        found = labels(planned(job, one))
        assert {"bf16", "fp32"} <= set(found) if ladder else found == [rung, "raise_clip", "lower_lr x0.1"]


def test_there_are_no_trials_without_a_loss_to_compare_or_a_folder_of_their_own() -> None:
    job = a_job_with_trials()
    silent = decided(job, faulty(job, kind=F.SCALE_COLLAPSE, first_loss=None))
    assert silent.trial is None and "no loss or no step was seen" in silent.because
    # A loss that was NaN from its first line on shows that the script prints its loss.
    assert decided(job, faulty(job, first_loss=None)).trial is not None
    shared = a_job_with_trials(checkpoint={"dir": "/data/checkpoints"})
    there = decided(shared, faulty(shared))
    assert there.trial is None and "checkpoint.dir is an absolute path" in there.because


def test_without_trials_a_job_gets_the_rung_of_the_rules_and_no_word_about_trials() -> None:
    job = a_job(recovery={"trials": "off"})
    found = decided(job, faulty(job))
    assert found.trial is None and found.rung == "lower_lr" and "trial" not in found.because


def test_one_candidate_is_no_choice() -> None:
    job = a_job_with_trials(recovery={"ladder": ["fp32"]})
    assert "it is the only rung that can be tried" in decided(job, faulty(job)).because


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
    assert labels(planned(job, faulty(job))) == ["lower_lr x0.5", "fp32"]


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
