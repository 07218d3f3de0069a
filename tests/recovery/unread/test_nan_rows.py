"""Tests that rows without a name for the loss that turn NaN explain the end of a log, and that scores do not."""

import pytest

from rung.jobs.model.fault import FaultKind
from rung.recovery.unread.nan_rows import FEWEST, NanRows
from tests.recovery.detect.watched_log import at_end, now


def lines(template, values):
    return "".join(template.format(n=n, v=value) + "\n" for n, value in enumerate(values, 1))


@pytest.mark.parametrize(
    "template",
    [
        "{n:4d} | {v} | {v} | {v}",
        "{n}\t{v}\t{v}\t-0.12",
        "[{n}/40] {v}",
        "R{n:03d}: A= {v} (B= {v}, C= {v})",
        "2031-04-05 10:11:12,131 round {n}: {v}",
    ],
)
def test_rows_that_end_in_nan_explain_the_end(template):
    text = lines(template, [2.5, 1.5] + ["nan"] * FEWEST)
    assert at_end(text) is FaultKind.NAN_LOSS
    assert now(text) is None
    assert at_end(lines(template, [2.5] + ["nan"] * (FEWEST - 1))) is None
    assert at_end(lines(template, [2.5] + ["nan"] * FEWEST + [2.5])) is None


@pytest.mark.parametrize(
    "template",
    [
        "class {n}: iou {v}",
        "group {n} acc={v} auc={v}",
        "| zebra | {v} | {v} | {v} |",
        "Validation {n}: {v} {v}",
        "{n} 0.51 {v} {v}",
        "# {n} {v}",
    ],
)
def test_scores_without_a_value_are_no_fault(template):
    assert at_end(lines(template, ["nan"] * 9)) is None


def test_rows_that_count_nothing_up_are_no_training():
    assert at_end("7 | nan | nan\n" * 9) is None
    assert at_end("".join(f"{n} | nan | nan\n" for n in range(9, 0, -1))) is None


def test_a_log_that_names_its_loss_may_hold_rows_of_nan():
    assert at_end("".join(f"step {n} loss 0.5\n" for n in range(9)) + lines("{n} | {v} | {v}", ["nan"] * 9)) is None


def test_rows_that_are_missing_may_have_been_finite():
    watched = NanRows()
    for number in (1, 2, 3):
        watched.see(f"{number} nan nan")
    assert watched.ends_bad
    watched.lines_missing()
    assert not watched.ends_bad
