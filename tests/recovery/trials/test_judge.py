"""Tests which trial goes on, is stopped, or wins."""

from __future__ import annotations

from dataclasses import replace

from rung.jobs.job import Attempt
from rung.jobs.model.trial import Trial
from rung.recovery.decide.decide import Relaunch
from rung.recovery.trials.judge import Progress, best_level, choose, progress, survivors, table
from tests.support.jobs_in_trouble import a_fault
from tests.support.trials_in_memory import FIRST, NAN, launched, tried


def trial_of(decision: Relaunch) -> Trial:
    assert decision.trial is not None
    return decision.trial


def level_of(loss: float, trial: Trial, until: int) -> list[tuple[int, float]]:
    return [(step, loss) for step in range(trial.start, until + 1)]


def test_a_trial_goes_on_to_the_end_of_its_window() -> None:
    trial = trial_of(launched())
    assert progress(trial, level_of(9.0, trial, 149), 149, []) is Progress.GOES_ON
    assert progress(trial, level_of(9.0, trial, 150), 150, []) is Progress.LEADS


def test_a_trial_that_is_clearly_behind_at_half_of_the_window_is_stopped() -> None:
    one = tried(launched(), 2, 1.0)
    trial = trial_of(launched(one))
    # Half of the window is half of the steps beyond the fault, at step 50.
    assert progress(trial, level_of(3.0, trial, 99), 99, [one]) is Progress.GOES_ON
    assert progress(trial, level_of(3.0, trial, 100), 100, [one]) is Progress.BEHIND
    assert progress(trial, level_of(1.0, trial, 100), 100, [one]) is Progress.GOES_ON
    # One that is read late was behind at half of the window all the same.
    caught_up = [*level_of(3.0, trial, 100), *((step, 0.1) for step in range(101, 151))]
    assert progress(trial, caught_up, 150, [one]) is Progress.BEHIND


def test_a_trial_that_falls_behind_after_half_of_the_window_is_stopped_at_the_next_mark() -> None:
    one = tried(launched(), 2, 1.0)
    trial = trial_of(launched(one))
    late = [*level_of(1.0, trial, 100), *((step, 9.0) for step in range(101, 151))]
    # Of the steps beyond the fault at step 50, the marks are 100, 112, 125 and 137.
    assert progress(trial, late, 124, [one]) is Progress.GOES_ON
    assert progress(trial, late, 125, [one]) is Progress.BEHIND
    assert progress(trial, late, 150, [one]) is Progress.BEHIND


def test_what_comes_between_two_marks_stops_no_trial() -> None:
    """So that it does not matter when the controller looks."""
    one = tried(launched(), 2, 1.0)
    trial = trial_of(launched(one))
    late = [*level_of(1.0, trial, 137), *((step, 1e6) for step in range(138, 150))]
    assert progress(trial, late, 149, [one]) is Progress.GOES_ON


def some_trials(*losses: float) -> list[Attempt]:
    over: list[Attempt] = []
    for number, loss in enumerate(losses, start=2):
        over.append(tried(launched(*over), number, loss))
    return over


def test_a_trial_leads_if_no_other_is_better() -> None:
    over = some_trials(2.96, 2.96, 2.96)
    trial = trial_of(launched(*over))
    assert progress(trial, level_of(1.0, trial, 150), 150, over) is Progress.LEADS
    assert progress(trial, level_of(2.96, trial, 150), 150, over) is Progress.LEADS
    ends_higher = [*level_of(2.96, trial, 100), *((step, 3.01) for step in range(101, 151))]
    assert progress(trial, ends_higher, 150, over) is Progress.OVER


def test_the_lowest_loss_beyond_the_noise_wins_and_among_equals_the_most_likely_one() -> None:
    second, first = some_trials(1.0, 2.0)
    won = choose([second, first], on_gpu=False)
    assert won is not None and won.number == 2
    second, first = some_trials(1.0, 1.0)
    won = choose([second, first], on_gpu=False)
    assert won is not None and won.number == 3 and won.trial is not None and won.trial.index == 0


def with_ms(attempt: Attempt, ms: float) -> Attempt:
    assert attempt.trial is not None
    return replace(attempt, trial=replace(attempt.trial, ms=ms))


def test_among_equals_on_a_gpu_the_fastest_wins() -> None:
    over = some_trials(2.96, 2.96, 2.96, 2.96)
    assert [each.rung for each in over] == ["lower_lr", "lower_lr", "raise_clip", "fp32"]
    wider = [*over[:3], with_ms(over[3], 2.0)]
    for on_gpu, number in ((True, 5), (False, 3)):
        won = choose(wider, on_gpu=on_gpu)
        assert won is not None and won.number == number


def test_what_differs_in_its_lr_or_clip_alone_is_equally_fast() -> None:
    """On a busy GPU the times differed by more than a tenth, and chose an lr that then learned nothing."""
    over = some_trials(2.96, 2.96, 2.96)
    for quick in (0, 2):
        times = [with_ms(each, 2.0 if number == quick else 5.0) for number, each in enumerate(over)]
        won = choose(times, on_gpu=True)
        assert won is not None and won.number == 3


def test_a_lower_lr_wins_against_a_higher_one_only_with_a_clear_lead() -> None:
    for lower, number in ((0.97, 3), (0.9, 2)):
        won = choose(some_trials(lower, 1.0), on_gpu=False)
        assert won is not None and won.number == number, lower
    over = some_trials(1.0, 4.0)
    lowest = trial_of(launched(*over))
    assert lowest.candidate.label == "lower_lr x0.001"
    assert progress(lowest, level_of(0.97, lowest, 150), 150, over) is Progress.OVER
    assert progress(lowest, level_of(0.9, lowest, 150), 150, over) is Progress.LEADS


def test_a_trial_with_a_fault_or_one_that_was_behind_does_not_win() -> None:
    over = some_trials(1.0)
    failed = tried(launched(*over), 3, 0.1, a_fault(NAN, 60))
    behind = tried(launched(*over, failed), 4, 0.2, behind=True)
    assert survivors([*over, failed, behind]) == over
    assert choose([failed, behind], on_gpu=False) is None
    assert best_level([FIRST, *over, failed]) == 1.0
    assert best_level([FIRST]) is None


def test_the_table_shows_what_each_trial_came_to() -> None:
    over = some_trials(1.0)
    failed = tried(launched(*over), 3, 0.5, a_fault(NAN, 149))
    rows = table([*over, failed], over[0])
    assert [(row.rung, row.steps, row.verdict) for row in rows] == [
        ("lower_lr x0.01", "0-150", "won"),
        ("lower_lr x0.1", "0-149", "nan_loss at step 149"),
    ]
    assert rows[0].loss == 1.0 and rows[0].ms == 5.0 and rows[1].loss is None
