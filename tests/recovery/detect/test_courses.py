"""Tests that a new model or a new optimizer in the same run is compared with its own beginning."""

import math
import random

import pytest

from rung.recovery.detect.detector import Detector
from rung.recovery.logs.lines import Line

STEP = "rung| step step={} loss={:.6g} lr=0.001 skipped=0"
COURSE = "rung| course number={} step={} why={}"


def falling(first, count, high, low, seed=0):
    """Return the records of a loss that falls from `high` to `low`, with a little noise."""
    chance = random.Random(seed)
    losses = (low + (high - low) * math.exp(-6 * index / count) for index in range(count))
    return [STEP.format(first + index, loss * chance.uniform(0.95, 1.05)) for index, loss in enumerate(losses)]


def follow(lines):
    detector = Detector()
    for number, text in enumerate(lines, 1):
        detector.feed(Line(number, text))
    return detector


def acted_on(lines):
    """Return the fault that a controller would have acted on while the run went on, or at its end."""
    detector = Detector()
    for number, text in enumerate(lines, 1):
        detector.feed(Line(number, text))
        if fault := detector.first_fault(ended=False):
            return fault
    return detector.first_fault(ended=True)


def folds(*, marked):
    """Return the records of four folds, each with a new model that begins slowly."""
    lines = []
    for fold in range(4):
        first = fold * 400 + 1
        lines += [COURSE.format(fold + 1, first, "new_model")] if fold and marked else []
        lines += falling(first, 60, 5.5, 5.4, seed=fold) + falling(first + 60, 340, 5.4, 0.02, seed=fold)
    return lines


def stages(*, marked):
    """Return the records of a pretraining and a fine-tuning whose loss is of another kind."""
    course = [COURSE.format(2, 601, "new_optimizer")] if marked else []
    return [*falling(1, 600, 2.0, 0.05), *course, *falling(601, 600, 40.0, 8.0)]


@pytest.mark.parametrize("run", [folds, stages])
def test_a_new_course_is_no_fault(run):
    assert acted_on(run(marked=False)) is not None, "the loss alone looks like a divergence"
    assert acted_on(run(marked=True)) is None


def test_the_first_loss_is_that_of_the_newest_course():
    assert follow(stages(marked=True)).history.first_loss == pytest.approx(40, rel=0.1)


def test_a_fault_that_is_confirmed_stays_when_a_new_course_begins():
    nan = [STEP.format(step, math.nan) for step in range(601, 604)]
    detector = follow([*falling(1, 600, 2.0, 0.05), *nan, COURSE.format(2, 604, "new_model")])
    assert detector.first_fault(ended=False).kind == "nan_loss"


def test_a_divergence_within_a_course_is_still_found():
    worse = [STEP.format(step, 30.0 + step % 3) for step in range(1201, 1400)]
    fault = follow([*stages(marked=True), *worse]).first_fault(ended=False)
    assert fault is not None and fault.kind == "divergence"


def epochs(first, losses):
    """Return the lines of a script that prints a loss for each epoch, and no step."""
    return [f"Epoch {number:02d} | Train Loss: {loss:.4f} | Time: 5.3s" for number, loss in enumerate(losses, first)]


def settled(level, count, seed=0):
    chance = random.Random(seed)
    return [level * chance.uniform(0.99, 1.01) for _ in range(count)]


@pytest.mark.parametrize("first", [0, 1, 29])
def test_epochs_that_begin_again_are_another_run_in_the_same_log(first):
    late, again = epochs(first, settled(0.05, 100)), settled(0.9, 100, seed=1)
    assert acted_on(late + epochs(min(first, 1), again)) is None
    # The same losses are a fault where the epochs go on.
    assert acted_on(late + epochs(first + 100, again)).kind.value == "divergence"


def test_two_ranks_that_print_for_themselves_do_not_begin_again():
    losses = [*settled(0.05, 100), *settled(0.9, 100, seed=1)]
    ranks = zip(epochs(1, losses), epochs(0, losses), strict=True)
    assert acted_on([line for pair in ranks for line in pair]).kind.value == "divergence"


def test_an_epoch_without_a_loss_or_with_a_fraction_begins_nothing():
    late, again = epochs(1, settled(0.05, 100)), epochs(101, settled(0.9, 100, seed=1))
    assert acted_on([*late, "Epoch 1 of the old run was better", *again]).kind.value == "divergence"
    assert acted_on([*late, "epoch 1.5 train loss: 0.05", *again]).kind.value == "divergence"
