"""Tests whether a run learns after a cure, over a long enough window and in bounded memory."""

from __future__ import annotations

import random

from rung.recovery.monitors.learning import (
    LearningBaseline,
    LossHistory,
    Verdict,
    healthy_level,
    judge,
    never_learned,
    was_falling,
    window_after,
)


def losses(course, first=0):
    history = LossHistory()
    for step, loss in enumerate(course, start=first):
        history.add(step, loss)
    return history


def noisy(level, count, spread=0.1, seed=0):
    source = random.Random(seed)
    return [level * (1 + source.gauss(0, spread)) for _ in range(count)]


def verdict(course, *, healthy=None, untrained=None, ended=False, fault_step=100):
    yardstick = LearningBaseline(fault_step, window_after(fault_step, 50), healthy, untrained)
    return judge(losses(course, first=fault_step), yardstick, ended=ended).verdict


def test_the_window_is_300_steps_or_three_times_the_time_to_the_fault():
    assert window_after(1000, 50) == 1300
    assert window_after(1000, 400) == 2200


def test_a_falling_loss_is_learning():
    falling = [5.0 * 0.99**i for i in range(400)]
    assert verdict(falling, healthy=4.0) is Verdict.LEARNING
    assert verdict(falling, untrained=6.0) is Verdict.LEARNING


def test_a_falling_loss_without_a_level_to_hold_it_against_shows_nothing():
    """A run that had blown up to 228,000 before the first line of its log fell to 136,000 and was called recovered."""
    ruined = [2.28e5 * 0.998**i for i in range(400)]
    assert verdict(ruined) is Verdict.LEVEL
    assert verdict([4.0 * 0.999**i for i in range(400)], untrained=2.5) is Verdict.LEVEL


def test_a_flat_loss_at_the_level_from_before_the_fault_shows_nothing():
    """0.1.0 called it learning: a loss that had been flat at 2.9 long before its fault was told as recovered."""
    assert verdict(noisy(2.0, 400), healthy=2.0) is Verdict.LEVEL


def test_a_flat_loss_above_the_level_from_before_the_fault_is_not_learning():
    assert verdict(noisy(3.0, 400), healthy=2.0) is Verdict.NOT_LEARNING


def test_a_flat_loss_of_a_run_that_never_learned_is_not_learning():
    assert verdict(noisy(3.0, 400), healthy=None) is Verdict.NOT_LEARNING


def test_a_flat_loss_far_below_the_untrained_level_shows_nothing():
    assert verdict(noisy(0.7, 400), untrained=1.4) is Verdict.LEVEL
    assert verdict(noisy(1.2, 400), untrained=1.4) is Verdict.NOT_LEARNING
    assert verdict(noisy(0.7, 400), untrained=1.4, healthy=0.3) is Verdict.NOT_LEARNING
    course = [1.4 * 0.9**i for i in range(7)] + noisy(0.7, 400)
    whole = LearningBaseline(30, window_after(30, 30), None, None)
    assert judge(losses(course), whole, ended=False).verdict is Verdict.LEVEL


def test_a_run_that_learned_the_little_there_is_to_learn_is_no_fault():
    # Means over 25 steps of a distillation in FP32; the entropy of its text is nearly all of its loss.
    course = [1.6754, 1.5237, 1.5075, 1.5074, 1.5104, 1.506, 1.5053, 1.5057, 1.5045, 1.5061, 1.5046, 1.5052, 1.5015]
    history = LossHistory()
    for number, loss in enumerate(course, start=1):
        history.add(25 * number, loss)
    whole = LearningBaseline(1, window_after(1, 1), None, None)
    assert judge(history, whole, ended=False).verdict is Verdict.LEVEL
    # The same fall within the noise of single steps is not learning.
    assert verdict(noisy(1.5, 400, 0.05), untrained=1.6754) is Verdict.NOT_LEARNING


def test_a_falling_loss_far_above_the_untrained_level_is_not_learning():
    assert verdict([9000 * 0.99**i for i in range(400)], untrained=8.0) is Verdict.NOT_LEARNING


def test_there_is_no_verdict_before_the_end_of_the_window_unless_the_run_ended():
    assert verdict(noisy(3.0, 100), healthy=2.0) is Verdict.TOO_EARLY
    assert verdict(noisy(3.0, 100), healthy=3.0, ended=True) is Verdict.LEVEL
    assert verdict(noisy(99.0, 100), untrained=8.0, ended=True) is Verdict.NOT_LEARNING


def test_a_run_that_ended_before_its_window_a_little_worse_gets_no_verdict():
    assert verdict(noisy(3.0, 100), healthy=2.0, ended=True) is Verdict.TOO_EARLY
    assert verdict(noisy(3.0, 5), healthy=2.0, ended=True) is Verdict.TOO_EARLY


def test_a_short_run_that_ends_at_the_untrained_level_is_not_learning():
    assert verdict(noisy(3.0, 100, 0.02), untrained=3.0, ended=True) is Verdict.NOT_LEARNING
    assert verdict(noisy(3.0, 100), untrained=2.5, ended=True) is Verdict.NOT_LEARNING
    # The level before an early fault is that of a run that had not learned either.
    assert verdict(noisy(3.0, 100, 0.02), healthy=3.1, untrained=3.0, ended=True) is Verdict.NOT_LEARNING
    # Not so for a run that reaches its old level, has a falling loss, few readings, or is a little better.
    assert verdict(noisy(3.0, 100), healthy=3.0, untrained=3.0, ended=True, fault_step=5000) is Verdict.LEVEL
    assert verdict([3.0 * 0.995**i for i in range(100)], untrained=2.0, ended=True) is Verdict.LEARNING
    assert verdict(noisy(3.0, 50), untrained=3.0, ended=True) is Verdict.TOO_EARLY
    assert verdict(noisy(3.0, 100), untrained=4.0, ended=True) is Verdict.TOO_EARLY


def test_a_falling_loss_above_that_of_the_best_trial_is_not_known_to_learn():
    course = [9.0 * 0.995**i for i in range(400)]
    for best, expected in ((0.5, Verdict.LEVEL), (9.0, Verdict.LEARNING), (None, Verdict.LEARNING)):
        baseline = LearningBaseline(100, window_after(100, 50), None, 10.0, best)
        assert judge(losses(course, first=100), baseline, ended=False).verdict is expected


def test_a_level_loss_no_worse_than_that_of_the_best_trial_is_no_fault():
    for best, expected in ((3.0, Verdict.LEVEL), (2.0, Verdict.NOT_LEARNING), (None, Verdict.NOT_LEARNING)):
        baseline = LearningBaseline(100, window_after(100, 50), None, None, best)
        assert judge(losses(noisy(3.0, 400), first=100), baseline, ended=False).verdict is expected


def test_a_run_without_a_fault_that_ends_no_better_than_untrained_never_learned():
    judgement = never_learned(losses(noisy(2.3, 400, 0.02)), 2.3)
    assert judgement is not None and "no better than the 2.3 it began with" in judgement.because


def test_a_run_that_is_flat_since_its_first_steps_never_learned():
    """As a GPT with an lr a hundred times too high: from 4.2 to 2.9 within 20 steps, and never further."""
    course = [4.2 - 0.065 * i for i in range(20)] + noisy(2.9, 1000, 0.02)
    judgement = never_learned(losses(course), 4.2)
    assert judgement is not None and "flat since step" in judgement.because
    assert never_learned(losses([4.2 * 0.999**i for i in range(1000)]), 4.2) is None
    converged = [4.2 * 0.8**i for i in range(20)] + noisy(0.05, 1000, 0.02)
    assert never_learned(losses(converged), 4.2) is None
    assert never_learned(losses(noisy(2.3, 20)), 2.3) is None


def test_a_loss_around_zero_has_no_level_to_judge():
    """As that of a policy: its median may be any number near zero, and says nothing."""
    around_zero = [each - 1.0 for each in noisy(1.05, 1000, 0.1)]
    assert never_learned(losses(around_zero), None) is None
    assert never_learned(losses([each + 1.0 for each in around_zero]), None) is not None


def test_a_running_one_is_judged_by_the_same_readings_however_far_its_log_was_read():
    """A run was told not to learn by a reader that came late, and to be level by a quick one."""
    course = noisy(1.0, 340, 0.02) + [3.0] * 160
    early = judge(losses(course[:341]), LearningBaseline(37, 337, 1.0, 2.0), ended=False)
    assert early.verdict is Verdict.LEVEL
    assert judge(losses(course), LearningBaseline(37, 337, 1.0, 2.0), ended=False) == early
    assert judge(losses(course), LearningBaseline(37, 337, 1.0, 2.0), ended=True).verdict is Verdict.NOT_LEARNING


def test_a_run_that_ends_at_its_resume_point_is_told_as_one_without_a_loss():
    """One that resumed at its last step ended with "judged at step 2300" of 2000."""
    nothing = judge(LossHistory(), LearningBaseline(37, 337, 1.0, 2.0), ended=True)
    assert nothing.verdict is Verdict.TOO_EARLY and "printed no loss" in nothing.because


def test_whether_the_loss_still_fell_before_a_fault():
    assert was_falling(losses([5.0 * 0.99**i for i in range(200)]), 180) is True
    assert was_falling(losses([5.0 - 0.1 * i for i in range(20)] + noisy(2.9, 200, 0.02)), 210) is False
    assert was_falling(losses([5.0, 4.0, 3.0]), 3) is None


def test_healthy_runs_with_noise_are_learning():
    for seed in range(40):
        course = [2.0 + 3.0 * 0.985**i for i in range(400)]
        noise = noisy(1.0, 400, spread=0.15, seed=seed)
        assert verdict([a * b for a, b in zip(course, noise, strict=True)], healthy=3.0) is Verdict.LEARNING


def test_the_healthy_level_is_the_level_that_the_loss_fell_to():
    falling = losses([10.0 * 0.98**i for i in range(100)])
    level = healthy_level(falling, 90)
    assert level is not None and 1.6 < level < 2.1
    resumed_late = healthy_level(losses(noisy(2.0, 500)), 490)
    assert resumed_late is not None and 1.8 < resumed_late < 2.2
    assert healthy_level(losses([1.0 * 1.1**i for i in range(100)]), 90) is None
    assert healthy_level(losses([1.0, 0.5]), 2) is None


def test_the_history_of_losses_is_bounded_and_keeps_its_shape():
    history = LossHistory(capacity=64)
    for step in range(100_000):
        history.add(step, 100_000.0 - step)
    assert len(history.between(0, 100_000)) < 64
    assert history.last_step is not None and history.last_step > 90_000
    assert history.between(0, 100_000) == sorted(history.between(0, 100_000), reverse=True)
    assert history.first_loss == 100_000.0


def test_losses_that_are_not_finite_are_not_in_the_history():
    assert losses([float("nan"), float("inf")]).last_step is None


def test_many_losses_at_once_are_kept_as_one_by_one():
    dice, one_by_one, at_once = random.Random(3), LossHistory(64), LossHistory(64)
    step = 0
    for _ in range(200):
        count = dice.choice((1, 5, 30))
        steps, losses = range(step, step + count), [dice.random() for _ in range(count)]
        lrs = [dice.random() for _ in range(count)] if dice.random() < 0.5 else None
        for place, loss in enumerate(losses):
            one_by_one.add(steps[place], loss, lrs[place] if lrs else None)
        at_once.add_many(steps, losses, lrs)
        assert vars(at_once) == vars(one_by_one)
        step += count
