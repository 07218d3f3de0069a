"""Tests that NaN under a name that no framework uses is found, and that NaN elsewhere is not."""

import pytest

from rung.jobs.model.fault import FaultKind
from rung.recovery.unread.unknown_loss import UnknownLoss
from tests.recovery.detect.watched_log import at_end, kinds, now


def lines(template, values):
    return "".join(template.format(n=n, v=value) + "\n" for n, value in enumerate(values))


@pytest.mark.parametrize(
    "template",
    [
        "[Train][{n}/9] NTXent: {v} | Top5: 12.5%",
        "epoch {n:3d} bpd {v} (best 2.1) |g| {v}",
        "I0302 10:00:0{n}.123456 4711 fit.py:88] epoch {n} bpr={v} NDCG=0.21",
        "Minibatch {n} of 90 | squared error {v} | step size 1e-3",
        "[{n:03d}] L {v} / gnorm {v}",
    ],
)
def test_nan_under_an_unknown_name_is_acted_on_after_a_few_lines(template):
    assert now(lines(template, ["nan"] * 4)) is FaultKind.NAN_LOSS
    assert now(lines(template, [1.5, 1.4, "nan", "nan", "nan"])) is FaultKind.NAN_LOSS


def test_the_end_of_the_log_needs_two():
    assert at_end(lines("epoch {n} bpr={v}", [1.2, "nan", "nan"])) is FaultKind.NAN_LOSS
    assert at_end(lines("epoch {n} bpr={v}", [1.2, 1.1, "nan"])) is None


def test_one_is_enough_where_the_gradients_beside_it_are_nan_too():
    assert at_end(lines("[{n:03d}] L {v} / gnorm {v}", [1.2, 1.1, "nan"])) is FaultKind.NAN_LOSS
    # A row of a table of data, with a letter for its index.
    assert at_end("f   -0.93   1.14\ng    NaN    NaN\nh    0.08   0.88\n") is None


def test_a_number_that_counts_something_comes_before_the_loss():
    assert now(lines("games={n} zeal_err={v} best=+0.1", [1.5, "nan", "nan", "nan"])) is FaultKind.NAN_LOSS


def test_finite_ones_after_it_clear_it():
    text = lines("epoch {n} bpr={v}", [1.2, "nan", "nan", 1.1, 1.0, 0.9])
    assert at_end(text) is None
    assert now(lines("epoch {n} bpr={v}", [1.2, "nan", 1.1, "nan", 1.0])) is None


def test_lines_that_are_missing_may_have_been_finite():
    watched = UnknownLoss()
    assert watched.add_to(None, "epoch 1 bpr=nan") is None
    watched.lines_missing()
    assert watched.add_to(None, "epoch 7 bpr=nan") is None
    assert watched.add_to(None, "epoch 8 bpr=nan") is not None


@pytest.mark.parametrize(
    "template",
    [
        "epoch {n} HR@10={v} users=0",
        "epoch {n} recall {v} of empty class",
        "epoch {n} val_bpd {v}",
        "Validation epoch {n}: bpd {v}",
        "epoch {n} sharpness {v}",
        "epoch {n} acc 0.5 bpr {v}",
        "# epoch {n} bpr={v}",
        "step {n} lr {v}",
    ],
)
def test_nan_that_is_no_training_loss_is_no_fault(template):
    assert kinds(lines(template, ["nan"] * 6)) == []


def test_a_log_that_names_its_loss_shows_scores_beside_it():
    text = "".join(f"epoch {n} loss 0.{n}\nepoch {n} mae nan\n" for n in range(1, 8))
    assert kinds(text) == []


@pytest.mark.parametrize(
    "template",
    [
        "Epoch[{n}] Batch [9] Speed: 71.2 samples/sec\tHeadAcc=0.41,\tHeadlogloss={v}",
        "round {n} clsloss: {v} boxloss: {v}",
        "go {n} gnmt-like 0.19s ppl {v} gN {v} bleu 0.00",
    ],
)
def test_a_name_that_says_that_it_is_a_loss_needs_only_one_nan(template):
    assert at_end(lines(template, [1.5, 1.4, "nan"])) is FaultKind.NAN_LOSS
    assert at_end(lines(template, [1.5, "nan", 1.4, 1.3, 1.2])) is None


@pytest.mark.parametrize(
    "template",
    [
        "epoch: {n}, lr:(1e-4,) time (data): 0.71 (0.002)] l_pix: {v}",
        "epoch: {n}, lr:(1e-4,) time (data): 0.71 (0.002)] l_g_style: {v}",
        "Round {n} || L: {v} C: {v} || took 3.1 sec.",
        "[{n}/9] errD={v} errG={v}",
        "acc: 0.00; ppl: {v}; 812 tok/s ({n})",
    ],
)
def test_a_letter_for_a_loss_and_the_losses_of_several_players_count_when_they_are_nan(template):
    assert at_end(lines(template, [1.5, "nan", "nan"])) is FaultKind.NAN_LOSS


def test_the_losses_of_several_players_may_rise_by_design():
    assert at_end(lines("[{n}/9] errD={v} errG={v}", [10.0**n for n in range(1, 12)])) is None


@pytest.mark.parametrize(
    "template", ["lossless: {v} in row {n}", "joint {n} l_hip: {v}", "| l_hip | {v} |", "epoch {n} bestloss {v}"]
)
def test_a_name_with_loss_or_a_letter_in_it_may_be_another_thing(template):
    assert kinds(lines(template, ["nan"] * 3)) == []
