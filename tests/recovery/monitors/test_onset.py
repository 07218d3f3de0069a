"""Tests the onset of a fault: the step at which the numbers went wrong, and the shape."""

import math
import random

import pytest

from rung.recovery.monitors.onset import OnsetTracker


def noisy(count, level=2.0, seed=1):
    chance = random.Random(seed)
    return [level + chance.gauss(0, 0.05) for _ in range(count)]


def trace(losses, norms=None, is_bad_value=True):
    run_up = OnsetTracker()
    for step, loss in enumerate(losses):
        run_up.add(step, loss, norms[step] if norms else None)
    return run_up.locate(len(losses) - 1, is_bad_value=is_bad_value)


def test_a_spike_that_ruined_the_run_is_the_onset():
    assert trace([*noisy(60), 90.0, 55.0, 70.0, math.nan]) == (60, "spike")


def test_a_spike_long_before_the_nan_is_still_the_onset_and_a_spike():
    assert trace([*noisy(60), *[80.0 + n % 3 for n in range(40)], math.nan]) == (60, "spike")


def test_a_loss_that_builds_up_is_a_drift():
    climb = [2.0 * 1.3**n for n in range(1, 15)]
    onset, shape = trace([*noisy(60), *climb, math.nan])
    assert shape == "drift" and 60 <= onset < 64


def test_a_sudden_nan_is_a_spike_at_its_own_step():
    assert trace([*noisy(60), math.nan]) == (60, "spike")
    assert trace([*noisy(60), math.nan, math.nan, math.nan]) == (62, "spike")


def test_a_sudden_exception_has_no_onset():
    assert trace(noisy(60), is_bad_value=False) == (None, None)
    assert trace([*noisy(60), 90.0], is_bad_value=False) == (60, "spike")


def test_a_gradient_norm_that_jumps_tenfold_is_the_onset():
    norms = [1.0 + 0.1 * (n % 3) for n in range(60)] + [300.0] + [40.0] * 9
    climb = [2.0 * 1.3**n for n in range(10)]
    assert trace([*noisy(60), *climb], norms) == (60, "spike")


def test_a_spike_that_the_run_recovered_from_is_not_the_onset():
    onset, _ = trace([*noisy(30), 90.0, *noisy(60, seed=2), math.nan])
    assert onset == 91


def test_too_few_numbers_give_no_onset():
    assert trace([2.0, 2.1, math.nan]) == (None, None)
    assert trace([]) == (None, None)


def test_a_falling_loss_has_its_onset_at_the_nan():
    falling = [5 * math.exp(-n / 50) + 0.2 * (n % 4) / 4 for n in range(200)]
    assert trace([*falling, math.nan])[0] == 200


def test_a_back_off_of_the_scaler_during_a_drift_does_not_make_it_a_spike() -> None:
    run_up = OnsetTracker()
    for step in range(64):
        run_up.add(step, 1.0 + 0.01 * (step % 3), 1.0)
    for step in range(64, 120):
        grown = 1.08 ** (step - 63)
        run_up.add(step, grown, math.inf if step % 10 == 0 else grown)
    onset, shape = run_up.locate(120, is_bad_value=True)
    assert shape == "drift" and onset is not None and 64 <= onset <= 72


def test_the_first_nan_gradient_is_the_onset_if_losses_are_averaged():
    norms = [1.0] * 60 + [math.nan] * 3
    assert trace([*noisy(60), 1.4, 0.0, 0.0], norms) == (60, "spike")
    assert trace([2.0, 1.4, 0.0, 0.0], [1.0, *[math.nan] * 3]) == (1, None)


def test_a_steep_rise_of_the_loss_in_the_first_steps_is_a_drift():
    assert trace([2.3, 2.4, 15.0, 300.0, 4000.0, math.nan]) == (2, "drift")
    assert trace([2.3, 40.0, 900.0]) == (1, "drift")
    # The growth speeds up later; only a jump at the onset makes it a spike.
    assert trace([15.6, 17.7, 5.7, 21.3, 27.8, 387.0, 397632.0, 1.5e15, math.inf]) == (5, "drift")


def test_a_thousandfold_rise_within_one_of_the_first_steps_is_a_spike():
    assert trace([2.3, 2.2, 9000.0, math.nan]) == (2, "spike")


def test_a_few_steps_at_the_first_level_give_no_onset():
    assert trace([2.3, 9.0, 2.1, math.nan]) == (None, None)


@pytest.mark.parametrize(("last", "shape"), [(0.3, "drift"), (0.1, "spike"), (0.02, "spike")])
def test_a_rise_of_the_loss_while_the_lr_rises_is_a_drift(last, shape):
    run_up = OnsetTracker()
    for step, loss in enumerate([*noisy(60), 40.0, 4e5]):
        run_up.add(step, loss, None, 0.1 + (last - 0.1) * step / 61)
    assert run_up.locate(62, is_bad_value=True) == (60, shape)


def test_the_first_finite_norm_is_stored():
    run_up = OnsetTracker()
    for norm in (None, math.inf, 1653.9, 7.0, math.nan):
        run_up.add(1, 2.0, norm)
    assert run_up.first_norm == 1653.9


def test_a_spike_after_the_end_of_the_warm_up_is_a_spike():
    run_up = OnsetTracker()
    for step in range(1, 61):
        run_up.add(step, 0.5 if step < 58 else 1e6 ** (step - 57), None, min(1.0, step / 20))
    assert run_up.locate(61, is_bad_value=True) == (58, "spike")


def test_nan_norms_beside_a_loss_at_its_level_are_no_rise():
    norms = [1.0 + 0.1 * (n % 3) for n in range(60)] + [math.nan] * 10
    assert trace(noisy(70), norms, is_bad_value=False) == (None, None)
