"""Tests that a number with a name of what is minimized explains the end where it ends ten thousand times higher."""

import pytest

from rung.jobs.model.fault import FaultKind
from tests.recovery.detect.watched_log import at_end, now

RISES = [2.5, 2.4, 80.0, 9e5, 4e6, 3e6]


def lines(template, values):
    return "".join(template.format(n=n, v=value) + "\n" for n, value in enumerate(values))


@pytest.mark.parametrize("template", ["ep{n} err={v}", "games={n} fit_err={v:.3e} best=+0.1", "pass {n} | cost {v} |"])
def test_a_rise_that_no_score_makes_explains_the_end(template):
    assert at_end(lines(template, RISES)) is FaultKind.DIVERGENCE
    assert now(lines(template, RISES)) is None


@pytest.mark.parametrize(
    "values",
    [
        RISES[:-2],  # too few of them high
        [2.5, 2.4, 9e6, 9e5, 4e6, 2.0],  # it came down again
        [2.5, 2.4, 9e3, 9e3, 9e3, 9e3],  # not so far
        [4e10, 3e10, 2e10, 2e10, 1e10, 1e10],  # the squared error of prices
        [-2.5, 2.4, 9e5, 9e6, 9e6, 9e6],  # one that may be below zero may have any scale
    ],
)
def test_a_rise_that_is_less_is_no_fault(values):
    assert at_end(lines("ep{n} err={v}", values)) is None


@pytest.mark.parametrize(
    "template", ["ep{n} critic_err={v}", "ep{n} reward={v}", "ep{n} val_err={v}", "ep{n} width={v}"]
)
def test_what_may_rise_or_is_no_training_loss_is_no_fault(template):
    assert at_end(lines(template, RISES)) is None


def test_numbers_that_no_mean_over_a_batch_reaches_are_a_fault_without_a_rise():
    assert at_end(lines("round {n}: avg cost per sample = {v}", [3e21] * 6)) is FaultKind.DIVERGENCE


def test_a_log_that_names_its_loss_goes_by_that():
    text = "".join(f"step {n} loss 0.5\nep{n} err={value}\n" for n, value in enumerate(RISES))
    assert at_end(text) is None
