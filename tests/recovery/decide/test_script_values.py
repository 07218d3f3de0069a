"""Tests that rungs start from the values that a script reported, and change no other knob."""

from __future__ import annotations

from typing import Any

import pytest

from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Knobs, Precision, RungName
from rung.recovery.decide.decide import Relaunch, decide
from rung.recovery.decide.script_values import read_script_values
from tests.support.jobs_in_trouble import a_fault, a_job, an_attempt, carried_out

F = FaultKind


def job(**recovery: Any) -> Any:
    return a_job(knobs={"mode": "zero-edit", "lr": None, "clip": None}, recovery=recovery)


def after(kind: FaultKind, said: dict[str, Any], *ladder: str, **fields: Any) -> Relaunch:
    mine = job(ladder=list(ladder))
    decision = decide(mine, [an_attempt(1, mine.knobs, a_fault(kind, **fields), effective=said)], [], None)
    assert isinstance(decision, Relaunch)
    return decision


@pytest.mark.parametrize(
    ("kind", "said", "rung", "asked"),
    [
        (F.NAN_LOSS, {"lr": 3e-4}, "lower_lr", Knobs(lr=3e-5)),
        (F.NAN_LOSS, {"clip": None}, "raise_clip", Knobs(clip=1.0)),
        (F.NAN_LOSS, {"clip": 1.0}, "raise_clip", Knobs(clip=0.5)),
        (F.NAN_LOSS, {}, "raise_clip", Knobs(clip=1.0)),
        (F.SCALE_THRASH, {"growth_interval": 1}, "increase_growth_interval", Knobs(growth_interval=2000)),
        (F.SCALE_THRASH, {"growth_interval": 2000}, "increase_growth_interval", Knobs(growth_interval=5000)),
        (F.SCALE_THRASH, {}, "increase_growth_interval", Knobs(growth_interval=5000)),
    ],
)
def test_a_rung_starts_from_the_scripts_own_value_and_changes_no_other_knob(kind, said, rung, asked) -> None:
    decision = after(kind, said, rung)
    assert (decision.rung, decision.knobs) == (RungName(rung), asked)


def test_the_reason_shows_the_change_from_the_scripts_own_value() -> None:
    assert "lower_lr (lr 0.0003 -> 3e-05)" in after(F.NAN_LOSS, {"lr": 3e-4}, "lower_lr").because
    assert "raise_clip (clip off -> 1.0)" in after(F.NAN_LOSS, {"clip": None}, "raise_clip").because
    assert "fp32 (precision amp_fp16 -> fp32)" in after(F.NAN_LOSS, {"precision": "amp_fp16"}, "fp32").because
    assert "fp32 (precision not set -> fp32)" in after(F.NAN_LOSS, {}, "fp32").because


def test_an_lr_that_the_script_never_reported_cannot_be_lowered() -> None:
    decision = after(F.NAN_LOSS, {}, "lower_lr", "fp32")
    assert decision.rung is RungName.FP32 and "none was seen" in dict(decision.skipped)["lower_lr"]


@pytest.mark.parametrize(
    ("said", "precision"),
    [
        ("amp_fp16", Precision.AMP_FP16),
        ("fp32", Precision.FP32),
        ("float16+float32_parameters_autocast_float16_scaler", Precision.AMP_FP16),
        ("float32_parameters_autocast_bfloat16_scaler", None),
        (16.0, None),
        (None, None),
    ],
)
def test_a_reported_mix_of_dtypes_counts_as_amp_if_it_autocasts_to_fp16(said, precision) -> None:
    assert read_script_values([an_attempt(1, Knobs(), None, effective={"precision": said})]).precision is precision


def test_the_first_report_of_a_knob_is_the_scripts_value_and_a_value_set_by_a_rung_is_not() -> None:
    mine = job()
    one = an_attempt(1, mine.knobs, a_fault(F.NAN_LOSS, shape="drift", onset=50), effective={"lr": 1e-3})
    lower = decide(mine, [one], [], None)
    assert isinstance(lower, Relaunch) and lower.knobs == Knobs(lr=1e-4)
    two = carried_out(2, lower, a_fault(F.NAN_LOSS, 300, shape="drift"), {"lr": 1e-4, "clip": 2.0})
    assert read_script_values([one, two]) == Knobs(lr=1e-3, clip=2.0)
    again = decide(mine, [one, two], [], None)
    assert isinstance(again, Relaunch) and again.knobs == Knobs(lr=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0, "1e-3", True, None, [1]])
def test_a_reported_value_that_is_invalid_is_ignored(value: Any) -> None:
    said = {"lr": value, "clip": value, "growth_interval": value, "batch": value}
    assert read_script_values([an_attempt(1, Knobs(), None, effective=said)]) == Knobs()
