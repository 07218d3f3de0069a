"""Tests which lines have a layout: those of one training step, which mean the same whatever came before them."""

from __future__ import annotations

import pytest

from rung.recovery.shapes.layout import template_of
from rung.recovery.shapes.recall import KnownLines, ShapeStore


def template(text: str) -> str:
    """Return the template of a line after it was learned."""
    known = KnownLines(ShapeStore())
    for _ in range(3):
        known.read(text)
    return known.templates(text.encode())[0]


@pytest.mark.parametrize(
    "text",
    [
        "step 12 loss 0.5 lr 1e-4",
        "2026-11-19 12:00:01 INFO step=12 loss=0.5 gnorm=1.25",
        "rung| step step=12 loss=0.5 scale=1024.0 skipped=0",
        "iter 12: loss 0.5, time 12.50ms, mfu 3.10%",
    ],
)
def test_a_step_of_a_training_has_a_layout(text: str) -> None:
    assert template(text) == template_of(text) != ""


@pytest.mark.parametrize(
    "text",
    [
        "step 12",
        "loss 0.5",
        "step 12 loss nan",
        "step 12 loss 0.5 grad_norm nan",
        "step 12 loss 0.5 lr nan",
        "step 12 loss 0.5 val_loss 0.7",
        "step 12 loss 0.5 ppl 7.5",
        "[rank1]: step 12 loss 0.5",
        "rung| step step=12 loss=0.5 scale=1024.0 skipped=1",
        " 12%|##  | 12/100 [00:01<00:02, 3.00it/s, loss=0.5]",
        "rung| saved step=12 file=a.pt",
        "step 12 loss1 0.5",
    ],
)
def test_other_lines_are_taken_one_by_one(text: str) -> None:
    assert template(text) == ""


def test_a_template_is_the_same_however_a_number_is_written() -> None:
    assert template_of("step 9 loss 2.25 lr 1e-4") == template_of("step 10 loss 13 lr 0.00012")
    assert template_of("step 9 loss 2.25") != template_of("step 9 loss: 2.25")
