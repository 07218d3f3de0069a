"""Tests the values of a run at a step: the last ones up to it, of a log of any length."""

from __future__ import annotations

import math

import pytest

from rung.recovery.logs.lines import Line
from rung.recovery.validation.at_step import StepReader

LOG = [f"step {step} loss {step / 10} {'val_loss ' + str(step) if step % 10 == 0 else ''}" for step in range(1, 101)]


def read(step: int, lines: list[str], metric: str | None = "val_loss") -> StepReader:
    reader = StepReader(step, metric)
    for number, text in enumerate(lines, 1):
        reader.feed(Line(number, text))
    return reader


@pytest.mark.parametrize(
    ("step", "loss", "measured"), [(100, 10.0, (100, 100.0)), (57, 5.7, (50, 50.0)), (7, 0.7, None)]
)
def test_the_last_values_up_to_the_step_count(step: int, loss: float, measured: tuple[int, float] | None) -> None:
    reader = read(step, LOG)
    assert reader.loss == (step, loss) and reader.measured == measured


def test_a_step_without_a_loss_has_the_one_before_it() -> None:
    assert read(15, ["step 10 loss 1.0", "step 20 loss 2.0"]).loss == (10, 1.0)
    assert read(5, ["step 10 loss 1.0"]).loss is None


def test_what_the_job_records_from_inside_outranks_what_it_prints() -> None:
    lines = ["rung| step step=1 loss=3.5", "step 1 loss 9.0 val_loss 0.5", "rung| step step=2 loss=nan"]
    reader = read(2, lines)
    assert reader.loss is not None and math.isnan(reader.loss[1])
    assert read(1, lines).loss == (1, 3.5) and read(1, lines).measured == (1, 0.5)
