"""Tests the course of trials: which one is next, ever lower learning rates, and when no more is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Precision
from rung.recovery.decide.decide import Relaunch, Stop
from rung.recovery.trials.decide_trials import Winner, decide_with_trials, next_trial, open_trials
from tests.support.jobs_in_trouble import a_checkpoint, a_fault
from tests.support.trials_in_memory import FIRST, JOB, NAN, faulty, launched, tried

F = FaultKind
FAILED = a_fault(NAN, 60)
# Above the goal of 2.94, and below it: the untrained model has a loss of 3.
NO_CURE, CURE = 2.96, 2.0


def winner(*over: Attempt) -> Attempt:
    found = next_trial(JOB, [FIRST, *over], None)
    assert isinstance(found, Winner)
    return found.attempt


def label(decision: Relaunch) -> str:
    assert decision.trial is not None
    return decision.trial.candidate.label


def test_the_candidates_run_one_after_the_other_from_the_same_checkpoint() -> None:
    source = replace(a_checkpoint(240), residence=("localhost", 1))
    jumped = faulty(JOB, 250, shape="spike", furthest_step=10_000)
    first = decide_with_trials(JOB, [jumped], [source], None)
    assert isinstance(first, Relaunch) and first.checkpoint == source
    assert "trial 1, of at most 4, from step_240.pt to step 350: lower_lr x0.1" in first.because
    begun = replace(
        tried(first, 2, 1.0), resumed_from="step_240.pt", planned_step=240, checkpoint_from=("localhost", 1)
    )
    second = next_trial(JOB, [jumped, begun], None)
    assert isinstance(second, Relaunch) and second.checkpoint is not None
    assert (second.checkpoint.name, second.checkpoint.step) == ("step_240.pt", 240)
    assert second.checkpoint.residence == ("localhost", 1)


def test_two_rungs_are_compared_and_no_more_where_one_of_them_is_a_cure() -> None:
    first = launched()
    assert label(first) == "lower_lr x0.01" and first.trial is not None and not first.trial.may_go_on
    over = [tried(first, 2, CURE)]
    second = launched(*over)
    assert label(second) == "lower_lr x0.1" and second.trial is not None and second.trial.may_go_on
    assert winner(*over, tried(second, 3, 1.4)).number == 3


def test_the_others_run_while_there_is_no_cure() -> None:
    over = [tried(launched(), 2, NO_CURE)]
    over.append(tried(launched(*over), 3, NO_CURE))
    assert label(launched(*over)) == "raise_clip"
    over.append(tried(launched(*over), 4, 5.0))
    assert label(launched(*over)) == "fp32"
    assert winner(*over, tried(launched(*over), 5, CURE)).number == 5


def test_a_higher_lr_than_one_that_failed_is_not_tried() -> None:
    lowest = tried(launched(), 2, 9.0, FAILED)
    assert label(launched(lowest)) == "raise_clip"


def test_a_lower_lr_is_tried_while_the_lowest_fails_and_nothing_is_a_cure() -> None:
    over = [tried(launched(), 2, 9.0, FAILED)]
    for expected in ("raise_clip", "fp32"):
        assert label(launched(*over)) == expected
        over.append(tried(launched(*over), len(over) + 2, NO_CURE))
    for expected in ("lower_lr x0.001", "lower_lr x0.0001"):
        lower = launched(*over)
        assert label(lower) == expected
        over.append(tried(lower, len(over) + 2, 9.0, a_fault(NAN, 60 + len(over))))
    assert winner(*over).rung == "raise_clip"


def test_a_lower_lr_comes_before_other_rungs_where_the_lower_of_two_is_better_and_neither_learns() -> None:
    lower = tried(launched(), 2, NO_CURE)
    worse = [tried(launched(lower), 3, 9.0, FAILED), tried(launched(lower), 3, 9.0, behind=True)]
    worse.append(tried(launched(lower), 3, 4.0))
    for higher in worse:
        assert label(launched(lower, higher)) == "lower_lr x0.001"
    # Where the lr makes no difference, where a trial learns, and where the run had learned, it is not the lr.
    assert label(launched(lower, tried(launched(lower), 3, NO_CURE))) == "raise_clip"
    assert label(launched(lower, tried(launched(lower), 3, 9.0, a_fault(F.INFRA_FAULT, 30)))) == "lower_lr x0.1"
    learned = replace(FIRST, healthy_loss=1.0)
    found = next_trial(JOB, [learned, lower, worse[0]], None)
    assert isinstance(found, Relaunch) and label(found) == "raise_clip"


def test_while_a_lower_lr_wins_a_lower_one_still_is_tried() -> None:
    over = [tried(launched(), 2, CURE)]
    over.append(tried(launched(*over), 3, 4.0))
    for number, (expected, loss) in enumerate([("lower_lr x0.001", 1.0), ("lower_lr x0.0001", 1.5)], start=4):
        lower = launched(*over)
        assert label(lower) == expected and lower.trial is not None and lower.trial.may_go_on
        over.append(tried(lower, number, loss))
    assert winner(*over).number == 4 and winner(*over).asked.lr == pytest.approx(1e-6)


def all_fail_at(step: int, count: int) -> list[Attempt]:
    """Return so many trials that Rung sees from inside, all of which fail at one step."""
    over: list[Attempt] = []
    for number in range(2, 2 + count):
        over.append(replace(tried(launched(*over), number, 9.0, a_fault(NAN, step)), hands=""))
    return over


def test_two_lower_learning_rates_that_fail_at_one_step_show_that_the_lr_is_not_the_cause() -> None:
    over = all_fail_at(60, 4)
    assert [each.rung for each in over] == ["lower_lr", "raise_clip", "fp32", "lower_lr"]
    assert next_trial(JOB, [FIRST, *over], None) is None
    # Far too high an lr fails in the first steps, whether it is a tenth lower or not.
    assert label(launched(*all_fail_at(16, 4))) == "lower_lr x0.0001"
    # A log with a line for every step shows it as well as a look from inside.
    logged = [replace(each, hands=None) for each in over]
    assert next_trial(JOB, [FIRST, *logged], None) is None
    # In a sparse log the step is that of its next line: what failed before may have failed later than the fault.
    sparse = [replace(each, trial=replace(each.trial, readings=((50, 9.0),))) for each in logged if each.trial]
    assert label(launched(*sparse)) == "lower_lr x0.0001"


def test_trials_in_which_nothing_helped_are_not_made_again_while_the_fault_stays_where_it_was() -> None:
    over = all_fail_at(50, 4)
    again = faulty(JOB, 50, shape=None, number=6, rung="native_fp16", furthest_step=10_000)
    again = replace(again, asked=JOB.knobs.but(precision=Precision.NATIVE_FP16))
    found = decide_with_trials(JOB, [FIRST, *over, again], [], None)
    assert not isinstance(found, Relaunch) or found.trial is None, found


def test_no_lower_lr_is_tried_where_it_was_right_before_and_another_rung_gets_past_the_fault() -> None:
    well = faulty(JOB, 1400, shape="spike", furthest_step=10_000, healthy_loss=1.0)
    first = decide_with_trials(JOB, [well], [a_checkpoint(1390)], None)
    assert isinstance(first, Relaunch) and label(first) == "lower_lr x0.1"
    at = a_fault(NAN, 1405)
    over = [tried(first, 2, 9.0, at)]
    clip = next_trial(JOB, [well, *over], None)
    assert isinstance(clip, Relaunch) and label(clip) == "raise_clip"
    over.append(tried(clip, 3, 1.5))  # past the fault, and not yet at its level again
    while isinstance(found := next_trial(JOB, [well, *over], None), Relaunch) and label(found) != "lower_lr x0.001":
        over.append(tried(found, len(over) + 2, 9.0, replace(at, step=1405 + len(over))))
    assert isinstance(found, Winner) and found.attempt.number == 3


def test_without_a_loss_before_the_fault_the_most_likely_candidate_is_a_cure_if_it_survives() -> None:
    blank = faulty(JOB, 2, shape=None, first_loss=None, furthest_step=10_000)
    first = decide_with_trials(JOB, [blank], [], None)
    assert isinstance(first, Relaunch) and first.trial is not None and first.trial.goal is None
    over = [tried(first, 2, 9.0, a_fault(NAN, 2))]
    likely = next_trial(JOB, [blank, *over], None)
    assert isinstance(likely, Relaunch) and likely.trial is not None and likely.trial.index == 0
    found = next_trial(JOB, [blank, *over, tried(likely, 3, 1.0)], None)
    assert isinstance(found, Winner) and found.attempt.number == 3


def test_a_third_one_is_left_out_when_the_trials_cost_too_much() -> None:
    """Two trials of 150 steps leave no room for a third within 400, if one of them got past the fault."""
    over = [tried(launched(), 2, NO_CURE)]
    over.append(tried(launched(*over), 3, NO_CURE))
    assert label(launched(*over)) == "raise_clip"
    tight = [replace(each, trial=replace(each.trial, bound=400)) for each in over if each.trial]
    assert winner(*tight).number == 3
    failed = [replace(each, fault=FAILED) for each in tight]
    assert label(launched(*failed)) == "raise_clip"


def test_a_fault_of_the_machine_runs_the_same_trial_again() -> None:
    first = launched()
    lost = tried(first, 2, 1.0, a_fault(F.INFRA_FAULT, 30))
    again = launched(lost)
    assert label(again) == label(first) and again.delay > 0
    often = [replace(lost, number=number) for number in range(2, 6)]
    assert label(launched(*often)) == "lower_lr x0.1"


def test_the_trials_of_a_lost_host_do_not_count() -> None:
    lost = replace(tried(launched(), 2, 1.0, a_fault(F.INFRA_FAULT, 30)), host_lost=True)
    assert open_trials([FIRST, lost]) == []
    anew = decide_with_trials(JOB, [FIRST, lost], [], None)
    assert isinstance(anew, Relaunch) and label(anew) == "lower_lr x0.01"


def test_after_a_lost_host_every_candidate_takes_part_again() -> None:
    """A trial that had survived there was taken for one that did not help, so that its rung was left out."""
    first = launched()
    over = tried(first, 2, 1.0)
    lost = replace(tried(launched(over), 3, 1.0, a_fault(F.INFRA_FAULT, 30)), host_lost=True)
    anew = decide_with_trials(JOB, [FIRST, over, lost], [], None)
    assert isinstance(anew, Relaunch) and anew.trial is not None and first.trial is not None
    assert anew.trial.candidates == first.trial.candidates


def test_where_no_candidate_helps_the_ladder_goes_on_without_them() -> None:
    over: list[Attempt] = []
    while (found := next_trial(JOB, [FIRST, *over], None) if over else launched()) is not None:
        assert isinstance(found, Relaunch)
        over.append(tried(found, len(over) + 2, 9.0, FAILED))
    decision = decide_with_trials(JOB, [FIRST, *over], [], None)
    assert isinstance(decision, Stop)
    reasons = dict(decision.skipped)
    assert "in its trial, attempt 4: nan_loss at step 60" in reasons["fp32"]
