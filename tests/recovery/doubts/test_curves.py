"""Tests what few numbers may show, and that healthy ones show nothing."""

import pytest

from rung.jobs.model.fault import FaultKind
from rung.recovery.doubts.curves import judge
from rung.recovery.doubts.series import collect
from rung.recovery.logs.lines import Line

DIVERGENCE, NAN = FaultKind.DIVERGENCE, FaultKind.NAN_LOSS


def doubts(values, template="step {n} loss {v}"):
    return judge(collect(Line(n + 1, template.format(n=10 * n, v=value)) for n, value in enumerate(values)))


def kinds(values, template="step {n} loss {v}"):
    return [doubt.kind for doubt in doubts(values, template)]


@pytest.mark.parametrize(
    "values",
    [
        [0.8, 0.7, 0.9, 12, 5270],
        [1.1, 1.0, 0.9, 0.95, 80],
        [2.0, 2.6, 3.6, 5.5, 9.5],
        [0.5, 0.4, 0.45, 0.5, 3.0, 3.1, 3.05, 3.2],
        [6e9, 7e9, 9e9],
        [3.6e10, 7800, 9900, 4000],
    ],
)
def test_a_loss_that_rose_may_show_divergence(values):
    assert kinds(values) == [DIVERGENCE]


@pytest.mark.parametrize(
    "values",
    [
        [0.8, 0.7, 0.9, 60, 0.8, 0.7],  # a spike
        [0.6, 0.3, 74, 42, 30, 16, 12, 9, 8],  # harder data
        [1.0, 1.1, 1.2, 1.3, 1.4],  # slowly up
        [10, 20, 30, 40, 50, 60],  # a sum over more and more terms
        [0.5, -0.6, 6.2, -5.3, 3.8],  # around zero
        [5.6, 5.0, 4.2, 3.9],
        [2.0, 9.0],  # two readings
        [0.5, 0.4, 0.6, 2.5],  # one high reading at the end
        [0.65, 0.71, 0.52, 0.46, 0.55, 0.7, 0.67],
    ],
)
def test_a_healthy_loss_shows_nothing(values):
    assert kinds(values) == []


def test_a_doubt_says_from_where_to_where_the_loss_rose():
    (doubt,) = doubts([0.82, 0.9, 40, 5270])
    assert doubt.why == "'loss' rose from 0.82 at step 0 to 5270 at step 30; too few readings to act on"
    assert (doubt.line, doubt.step, doubt.evidence) == (4, 30, "step 30 loss 5270")


def test_what_may_rise_by_design_shows_nothing():
    up = [1, 3, 9, 27, 81, 250]
    assert kinds(up, "step {n} value_loss {v}") == []
    assert kinds(up, "step {n} loss 0.5 kl {v}") == []
    assert kinds(up, "epoch {n} accuracy {v}") == []
    assert kinds(up, "epoch {n} zeal {v}") == [DIVERGENCE]


def test_nan_may_show_more():
    assert kinds([0.8, "nan", 0.7, 0.6]) == [NAN]
    assert kinds(["0.5", "0.4", "nan"], "epoch {n} valid_loss: {v}") == [NAN]
    assert kinds(["0.5", "0.4", "nan", "nan"], "epoch {n} loss 0.5 F1: {v}") == [NAN]
    assert kinds(["nan", "nan", "nan", "nan"], "epoch {n} loss 0.5 F1: {v}") == []
    assert kinds(["0.5", "nan", "0.4", "0.5"], "epoch {n} loss 0.5 F1: {v}") == []
    assert kinds(["nan", "nan", "nan"], "epoch {n} loss 0.5 mae: {v}") == []


def test_gradients_that_exploded_are_shown():
    assert kinds([1.1, 0.9, 1.0, 4000, 9000], "step {n} loss 2.5 gnorm {v}") == [DIVERGENCE]
    assert kinds([1.1, 0.9, "nan", "nan"], "step {n} loss 2.5 gnorm {v}") == [FaultKind.GRAD_NONFINITE]
    assert kinds([1.1, "inf", 0.9, 1.0], "step {n} loss 2.5 gnorm {v}") == []


def test_a_scale_that_keeps_falling_and_one_that_swings_are_shown():
    scale = "step {n} loss 2.5 loss_scale {v}"
    assert kinds([2.0**power for power in range(16, 6, -1)], scale) == [FaultKind.SCALE_COLLAPSE]
    assert kinds([8, 4, 8, 4, 8, 4, 8, 4], scale) == [FaultKind.SCALE_THRASH]
    assert kinds([65536, 32768, 32768, 32768], scale) == []
    assert kinds([*(2.0**power for power in range(16, 6, -1)), 128, 128], scale) == []


def test_steps_that_are_skipped_again_and_again_are_shown():
    skipped = "step {n} loss 2.5 skipped {v}"
    assert kinds([0, 1, 0, 1, 1, 0, 1, 1], skipped) == [FaultKind.SCALE_THRASH]
    assert kinds([1, 1, 1, 1, 1, 0, 0, 0, 0, 0], skipped) == []


def test_a_perplexity_beyond_any_vocabulary_is_shown():
    assert kinds([1e30, 1e41, 1e38], "epoch 1 | step {n} | loss 80.5 | ppl {v}") == [DIVERGENCE]
    assert kinds([90000, 800, 300], "epoch 1 | step {n} | loss 5.5 | ppl {v}") == []


def test_a_loss_that_left_its_first_values_far_below_is_shown_although_it_falls_again():
    assert kinds([2.2, 3e6, 4e5, 9e4, 7e3, 5e3]) == [DIVERGENCE]
    assert kinds([2.2, 3e6, 4e5, 9e4, 7e3, 2.1]) == []


def test_what_is_never_a_number_on_held_out_data_is_shown_and_one_score_of_several_is_not():
    nan = "epoch {n} loss 0.5. Validation spectral distance: {v}."
    assert kinds(["nan"] * 4, nan) == [NAN]
    assert kinds(["nan"] * 2, nan) == []
    assert kinds(["nan"] * 4, "epoch {n} loss 0.5 val_mae 0.2 val_mape {v}") == []


def test_the_loss_of_a_critic_that_only_rises_beyond_what_rewards_explain_is_shown():
    assert kinds([4e4, 9e4, 6e5, 2e6, 9e6, 3e7], "update {n} q_loss {v}") == [DIVERGENCE]
    assert kinds([4e4, 9e4, 6e5, 2e5, 9e6, 3e7], "update {n} q_loss {v}") == []
    assert kinds([0.4, 0.9, 6.0, 20.0, 90.0, 300.0], "update {n} q_loss {v}") == []


def test_a_single_back_off_long_after_a_scaler_has_found_its_scale_shows_nothing():
    fall = [f"step {n} loss_scale {2 ** (22 - n)}" for n in range(10)]
    level = [f"step {n} loss 0.5" for n in range(10, 40)]
    lines = [Line(number, text) for number, text in enumerate([*fall, *level, "step 40 loss_scale 4096"])]
    assert judge(collect(lines)) == []
    assert [doubt.kind for doubt in judge(collect(lines[:10]))] == [FaultKind.SCALE_COLLAPSE]


def test_a_column_without_a_name_that_holds_what_nothing_measures_is_shown():
    assert kinds([3e22, 8e22, 5e23], "{n};0.1;{v}") == [DIVERGENCE]
    assert kinds([1.7e9, 1.8e9, 1.9e9], "{n};0.1;{v}") == []


def test_two_readings_are_enough_where_the_loss_rose_beyond_any_design():
    assert kinds([1.4, 1.2e6], "it {n} dis/loss {v}") == kinds([1.4, 1.2e6]) == [DIVERGENCE]
    assert kinds([1.4, 9e4]) == kinds([0.001, 9e4]) == kinds([1.4, 1.2e6], "it {n} zeal {v}") == []
