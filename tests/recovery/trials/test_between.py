"""Tests the lr between two tenths: when it is tried, on which side of the winner, and when it wins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.trial import Trial
from rung.recovery.decide.decide import Relaunch
from rung.recovery.trials.decide_trials import Winner, decide_with_trials, next_trial
from rung.recovery.trials.judge import Progress, progress
from tests.support.jobs_in_trouble import a_fault
from tests.support.trials_in_memory import JOB, NAN, a_job_with_trials, faulty, tried

# It fails at step 8, with a loss of 3 before it has learned anything, so that half of what is untrained is about 1.5.
FIRST = faulty(JOB, 8, furthest_step=10_000)


def following(*over: Attempt, first: Attempt = FIRST) -> Relaunch | Winner | None:
    if over:
        return next_trial(JOB, [first, *over], None)
    decision = decide_with_trials(JOB, [first], [], None)
    assert isinstance(decision, Relaunch)
    return decision


def label(decision: Relaunch | Winner | None) -> str:
    assert isinstance(decision, Relaunch) and decision.trial is not None
    return decision.trial.candidate.label


def trial_with(loss: float, *over: Attempt, falls: bool = False, failed_at: int | None = None) -> Attempt:
    """Return the next trial, which ends with a loss that is level, or falls by a tenth over the last half."""
    decision = following(*over)
    assert isinstance(decision, Relaunch)
    fault = a_fault(NAN, failed_at) if failed_at is not None else None
    made = tried(decision, len(over) + 2, loss, fault)
    return with_falling(made, loss) if falls else made


def with_falling(made: Attempt, loss: float) -> Attempt:
    trial = made.trial
    assert trial is not None
    steps = range(trial.start + 1, trial.until + 1)
    readings = tuple((step, loss * (1 + 0.2 * (trial.until - step) / len(steps))) for step in steps)
    return replace(made, trial=replace(trial, readings=readings))


def won_and_falls(loss: float = 2.0) -> list[Attempt]:
    """Return the trials of x0.01, which learns slowly, and of x0.1, which fails at once."""
    first = trial_with(loss, falls=True)
    return [first, trial_with(9.0, first, failed_at=8)]


def won_and_is_level() -> list[Attempt]:
    """Return three trials in which x0.01 won, with a level loss that is still high, and both tenths around it lost."""
    first = trial_with(2.0)
    second = trial_with(9.0, first, failed_at=40)
    return [first, second, trial_with(2.6, first, second)]


def test_above_a_winner_that_still_falls_twice_its_lr_is_tried() -> None:
    found = following(*won_and_falls())
    assert label(found) == "lower_lr x0.02"
    assert isinstance(found, Relaunch) and found.trial is not None
    # Over the same steps, and it can go on without a stop.
    before = won_and_falls()[0].trial
    assert before is not None and (found.trial.start, found.trial.until) == (before.start, before.until)
    assert found.trial.may_go_on and found.checkpoint is None
    assert found.knobs.lr == pytest.approx(2e-5)
    assert "trial 3, of at most 5, from scratch to step 108: lower_lr x0.02" in found.because


def test_below_a_winner_that_is_level_three_tenths_of_its_lr_are_tried() -> None:
    over = won_and_is_level()
    assert [each.trial.candidate.label for each in over if each.trial][2] == "lower_lr x0.001"
    assert label(following(*over)) == "lower_lr x0.003"


@pytest.mark.parametrize(("loss", "wins"), [(1.85, True), (1.95, False), (2.05, False), (2.4, False)])
def test_it_wins_only_if_it_is_more_than_5_percent_lower(loss: float, wins: bool) -> None:
    for over in (won_and_falls(), won_and_is_level()):
        decision = following(*over)
        assert isinstance(decision, Relaunch) and decision.trial is not None
        made = tried(decision, len(over) + 2, loss)
        # The loss of the winner that falls is 2.05 in the last half of the window.
        made = with_falling(made, loss) if over[0].trial and over[0].trial.readings[0][1] > 2.1 else made
        trial = made.trial
        assert trial is not None
        found = progress(decision.trial, trial.readings, trial.until, over)
        assert (found is Progress.LEADS) == wins, loss
        chosen = following(*over, made)
        assert isinstance(chosen, Winner) and chosen.attempt.number == (made.number if wins else over[0].number)


def test_one_that_fails_leaves_the_winner_and_no_other_is_tried() -> None:
    over = won_and_falls()
    decision = following(*over)
    assert isinstance(decision, Relaunch)
    found = following(*over, tried(decision, 4, 9.0, a_fault(NAN, 12)))
    assert isinstance(found, Winner) and found.attempt.number == 2


def trials_of(attempt: Attempt, **changed: Any) -> Attempt:
    assert isinstance(attempt.trial, Trial)
    return replace(attempt, trial=replace(attempt.trial, **changed))


def test_it_is_not_tried_where_it_would_tell_nothing_or_cost_too_much() -> None:
    assert isinstance(following(*won_and_falls(1.2)), Winner), "it has learned already"
    over = won_and_falls()
    learned = replace(FIRST, healthy_loss=2.2)
    assert isinstance(following(*over, first=learned), Winner), "it is compared with what it had learned"
    assert isinstance(following(*(trials_of(each, bound=110) for each in over)), Winner), "108 + 8 steps are too many"
    assert label(following(*(trials_of(each, bound=116) for each in over))) == "lower_lr x0.02"
    assert isinstance(following(*(trials_of(each, goal=None) for each in over)), Relaunch), "fp32 and clip are left"
    sparse = [trials_of(each, readings=each.trial.readings[::20]) for each in over if each.trial]
    assert label(following(*sparse)) == "lower_lr x0.001", "whether it falls is not known"


def test_it_is_one_of_the_candidates_that_the_job_file_allows() -> None:
    two = a_job_with_trials(recovery={"trials": {"steps": 100, "candidates": 2}})
    assert isinstance(next_trial(two, [FIRST, *won_and_falls()], None), Winner)


def test_a_tenth_of_a_winner_that_falls_is_not_tried_where_ten_times_as_much_failed_at_once() -> None:
    first = trial_with(2.0, falls=True)
    late = trial_with(9.0, first, failed_at=40)
    assert label(following(first, late)) == "lower_lr x0.001"


def seen_from_inside(attempt: Attempt) -> Attempt:
    return replace(attempt, hands="")


def test_a_lower_lr_that_fails_later_is_followed_by_a_lower_one_before_other_rungs() -> None:
    first = seen_from_inside(FIRST)
    failed = seen_from_inside(trial_with(9.0, failed_at=12))
    assert label(following(failed, first=first)) == "lower_lr x0.001"
    again = following(failed, first=first)
    assert isinstance(again, Relaunch)
    cure = tried(again, 3, 1.2)
    found = following(failed, cure, first=first)
    # Nothing else is needed but a still lower one, as before.
    assert label(found) == "lower_lr x0.0001"
    # At the same step it may be the data, beyond the first steps a fault of another kind, and nobody sees the step.
    same = seen_from_inside(trial_with(9.0, failed_at=8))
    late = seen_from_inside(trial_with(9.0, failed_at=30))
    for over, about in ((same, first), (late, first), (failed, FIRST)):
        assert label(following(over, first=about)) == "raise_clip"


def test_the_same_rungs_are_tried_where_a_still_lower_lr_is_no_cure() -> None:
    first = seen_from_inside(FIRST)
    over = [seen_from_inside(trial_with(9.0, failed_at=12))]
    lower = following(*over, first=first)
    assert isinstance(lower, Relaunch)
    over.append(seen_from_inside(tried(lower, 3, 9.0, a_fault(NAN, 12))))
    labels = []
    while isinstance(found := following(*over, first=first), Relaunch):
        labels.append(label(found))
        over.append(tried(found, len(over) + 2, 9.0, a_fault(NAN, 30 + len(over))))
    assert {"raise_clip", "fp32"} <= set(labels)
