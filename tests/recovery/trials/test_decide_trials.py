"""Tests the course of trials: one after the other, ever lower learning rates, and the launch of the winner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.recovery.decide.checkpoint_choice import Checkpoint
from rung.recovery.decide.decide import Relaunch, Stop
from rung.recovery.trials.decide_trials import Winner, decide_with_trials, launch_winner, next_trial, open_trials
from tests.support.jobs_in_trouble import a_checkpoint, a_fault
from tests.support.trials_in_memory import NAN, a_job_with_trials, faulty, tried

F = FaultKind
JOB = a_job_with_trials(recovery={"trials": {"steps": 100}})
# The fault was seen long after the numbers went wrong, so that there is room for four trials.
FIRST = faulty(JOB, furthest_step=10_000)
FAILED = a_fault(NAN, 60)


def launched(*over: Attempt) -> Relaunch:
    attempts = [FIRST, *over]
    found = next_trial(JOB, attempts, None) if over else decide_with_trials(JOB, attempts, [], None)
    assert isinstance(found, Relaunch) and found.trial is not None
    return found


def label(decision: Relaunch) -> str:
    assert decision.trial is not None
    return decision.trial.candidate.label


def test_the_candidates_run_one_after_the_other_from_the_same_checkpoint() -> None:
    source = replace(a_checkpoint(40), residence=("localhost", 1))
    first = decide_with_trials(JOB, [faulty(JOB, shape="spike")], [source], None)
    assert isinstance(first, Relaunch) and first.checkpoint == source and "from step_40.pt to step 150" in first.because
    begun = replace(tried(first, 2, 1.0), resumed_from="step_40.pt", planned_step=40, checkpoint_from=("localhost", 1))
    second = next_trial(JOB, [FIRST, begun], None)
    assert isinstance(second, Relaunch) and second.checkpoint is not None
    assert (second.checkpoint.name, second.checkpoint.step) == ("step_40.pt", 40)
    assert second.checkpoint.residence == ("localhost", 1)


def test_a_higher_lr_than_one_that_failed_is_not_tried() -> None:
    fp32 = tried(launched(), 2, 2.0)
    clip = tried(launched(fp32), 3, 2.0)
    lowest = launched(fp32, clip)
    assert label(lowest) == "lower_lr x0.01"
    assert label(launched(fp32, clip, tried(lowest, 4, 1.0))) == "lower_lr x0.1"
    # A lower one is tried instead, down to the lowest.
    over = [fp32, clip, tried(lowest, 4, 9.0, FAILED)]
    for expected in ("lower_lr x0.001", "lower_lr x0.0001"):
        lower = launched(*over)
        assert label(lower) == expected
        over.append(tried(lower, len(over) + 2, 9.0, FAILED))
    end = next_trial(JOB, [FIRST, *over], None)
    assert isinstance(end, Winner) and end.attempt.number == 3


def test_while_a_lower_lr_is_clearly_better_a_lower_one_still_is_tried() -> None:
    over = [tried(launched(), 2, 5.0, FAILED)]
    over.append(tried(launched(*over), 3, 5.0, FAILED))
    over.append(tried(launched(*over), 4, 2.0))
    over.append(tried(launched(*over), 5, 4.0))
    for number, (expected, loss) in enumerate([("lower_lr x0.001", 1.0), ("lower_lr x0.0001", 1.5)], start=6):
        lower = launched(*over)
        assert label(lower) == expected
        over.append(tried(lower, number, loss))
    end = next_trial(JOB, [FIRST, *over], None)
    assert isinstance(end, Winner) and end.attempt.number == 6 and end.attempt.asked.lr == pytest.approx(1e-6)


def test_the_others_are_left_out_when_the_trials_cost_too_much() -> None:
    """Two trials of 150 steps leave no room for a third within 400; the most likely one still runs."""
    fp32 = tried(launched(), 2, 2.0)
    clip = tried(launched(fp32), 3, 2.0)
    assert clip.trial is not None
    tight = replace(clip, trial=replace(clip.trial, bound=400))
    assert label(launched(fp32, tight)) == "lower_lr x0.1"


def test_a_fault_of_the_machine_runs_the_same_trial_again() -> None:
    first = launched()
    lost = tried(first, 2, 1.0, a_fault(F.INFRA_FAULT, 30))
    again = launched(lost)
    assert label(again) == label(first) and again.delay > 0
    often = [replace(lost, number=number) for number in range(2, 6)]
    assert label(launched(*often)) == "raise_clip"


def test_the_trials_of_a_lost_host_do_not_count() -> None:
    lost = replace(tried(launched(), 2, 1.0, a_fault(F.INFRA_FAULT, 30)), host_lost=True)
    assert open_trials([FIRST, lost]) == []
    anew = decide_with_trials(JOB, [FIRST, lost], [], None)
    assert isinstance(anew, Relaunch) and anew.trial is not None and anew.trial.index == 0


def test_after_a_lost_host_every_candidate_takes_part_again() -> None:
    """A trial that had survived there was taken for one that did not help, so that its rung was left out."""
    first = launched()
    over = tried(first, 2, 1.0)
    lost = replace(tried(launched(over), 3, 1.0, a_fault(F.INFRA_FAULT, 30)), host_lost=True)
    anew = decide_with_trials(JOB, [FIRST, over, lost], [], None)
    assert isinstance(anew, Relaunch) and anew.trial is not None and first.trial is not None
    assert anew.trial.candidates == first.trial.candidates


def test_the_winner_goes_on_from_the_newest_checkpoint_of_its_trial() -> None:
    winner = tried(launched(), 2, 1.0)
    own = [replace(a_checkpoint(step), residence=("localhost", 2)) for step in (50, 100)]
    poisoned = replace(a_checkpoint(150, "nonfinite"), residence=("localhost", 2))
    decision = launch_winner(JOB, [FIRST, winner], winner, [*own, poisoned], None)
    assert decision.checkpoint == own[1] and decision.trial is None
    assert (decision.rung, decision.knobs) == ("fp32", winner.asked)
    assert "fp32 won the trials with a loss of 1 at step 150" in decision.because
    assert "goes on from step_100.pt of its trial" in decision.because


def test_a_winner_that_saved_nothing_begins_where_all_trials_began() -> None:
    winner = replace(tried(launched(), 2, 1.0), resumed_from="step_40.pt", planned_step=40, checkpoint_from=("a", 1))
    decision = launch_winner(JOB, [FIRST, winner], winner, [], None)
    assert decision.checkpoint == Checkpoint("step_40.pt", 40, 0.0, residence=("a", 1))


def test_a_run_that_no_rung_changes_is_left_alone() -> None:
    job = JOB
    jumped = faulty(job, 500, F.DIVERGENCE, "spike", healthy_loss=1.0)
    decision = decide_with_trials(job, [jumped], [a_checkpoint(490)], None)
    over: list[Attempt] = []
    while isinstance(decision, Relaunch):
        over.append(tried(decision, len(over) + 2, 1.0))
        found = next_trial(job, [jumped, *over], None)
        if isinstance(found, Winner):
            break
        assert isinstance(found, Relaunch)
        decision = found
    assert isinstance(found, Winner) and found.attempt.rung is None
    alone = launch_winner(job, [jumped, *over], found.attempt, [], None)
    assert alone.left_alone and alone.rung is None and "no rung changes it" in alone.because


def test_where_no_candidate_helps_the_ladder_goes_on_without_them() -> None:
    over: list[Attempt] = []
    while (found := next_trial(JOB, [FIRST, *over], None) if over else launched()) is not None:
        assert isinstance(found, Relaunch)
        over.append(tried(found, len(over) + 2, 9.0, FAILED))
    decision = decide_with_trials(JOB, [FIRST, *over], [], None)
    assert isinstance(decision, Stop)
    reasons = dict(decision.skipped)
    assert "in its trial, attempt 2: nan_loss at step 60" in reasons["fp32"]
