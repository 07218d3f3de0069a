"""Tests the comparison of two trials: at equal steps, against the noise of their differences."""

from __future__ import annotations

import random

from rung.recovery.trials.compare import compare, end_of, level

WINDOW = (0, 300)


def course(at_end: float, seed: int = 0, spread: float = 0.2, every: int = 1) -> list[tuple[int, float]]:
    """Return a loss that falls to a level, with the noise of its batches: the same for the same seed."""
    source = random.Random(seed)
    noise = [source.gauss(1, spread) for _ in range(301)]
    return [(step, at_end * noise[step]) for step in range(0, 301, every)]


def test_the_level_of_a_trial_is_that_of_the_last_third_of_its_window() -> None:
    readings = [(step, float(step)) for step in range(0, 401, 50)]
    assert end_of(readings, 0, 300) == [(200, 200.0), (250, 250.0), (300, 300.0)]
    assert level(readings, 0, 300) == 250.0
    assert level(readings[:2], 0, 300) is None


def test_a_small_difference_on_the_same_batches_is_clear_though_the_noise_of_the_loss_is_larger() -> None:
    better, worse = course(1.0), course(1.05)
    found = compare(better, worse, *WINDOW)
    assert found is not None and found.is_lower and not found.is_far_higher
    back = compare(worse, better, *WINDOW)
    assert back is not None and not back.is_lower and back.difference > 0


def test_two_runs_without_a_difference_are_told_apart_in_few_of_a_hundred() -> None:
    clear = 0
    for seed in range(100):
        found = compare(course(1.0, seed), course(1.0, seed + 1000), *WINDOW)
        assert found is not None
        clear += found.is_lower
    assert clear <= 8


def test_a_batch_with_an_enormous_loss_hides_no_difference() -> None:
    """One batch in fifty with labels in the wrong unit; the mean of the differences would show only that one."""
    better, worse = course(1.0), course(1.3)
    better[250] = worse[250] = (250, 1e8)
    worse[251] = (251, 1e7)
    found = compare(better, worse, *WINDOW)
    assert found is not None and found.is_lower


def test_a_loss_that_soars_is_higher_though_its_own_spread_is_larger_than_the_difference() -> None:
    """A run that blew up to 4 within a few steps beside one at 0.9 was told to be no worse: its spread hid it."""
    level_one = [(step, 0.9) for step in range(31)]
    soaring = [(step, 0.95 * 3 ** max(0, step - 20)) for step in range(31)]
    found = compare(level_one, soaring, 0, 30)
    assert found is not None and found.is_lower and found.difference > -found.noise
    back = compare(soaring, level_one, 0, 30)
    assert back is not None and not back.is_lower


def test_less_than_a_hundredth_is_the_same_level() -> None:
    found = compare(course(1.0, spread=0.0), course(1.005, spread=0.0), *WINDOW)
    assert found is not None and not found.is_lower


def test_a_sparse_log_needs_a_larger_difference() -> None:
    for other, is_lower in ((1.05, False), (1.5, True)):
        found = compare(course(1.0, every=150), course(other, every=150), *WINDOW)
        assert found is not None and found.is_lower is is_lower


def test_readings_at_different_steps_are_compared_by_their_levels() -> None:
    odd = [(step, 1.0) for step in range(1, 300, 10)]
    even = [(step, 2.0) for step in range(0, 300, 10)]
    found = compare(odd, even, *WINDOW)
    assert found is not None and found.is_lower


def test_a_trial_without_readings_at_the_end_is_not_compared() -> None:
    assert compare(course(1.0)[:50], course(1.0), *WINDOW) is None
