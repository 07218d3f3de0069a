"""Tests the knobs: how they are stored, and how asked and effective values are compared."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.model.knobs import KNOB_NAMES, Knobs, Precision, no_value_text, not_taken, same_value

positive = st.floats(min_value=1e-12, max_value=1e12, allow_nan=False)
counts = st.integers(min_value=1, max_value=10**9)
any_knobs = st.builds(
    Knobs,
    lr=st.none() | positive,
    clip=st.none() | positive,
    growth_interval=st.none() | counts,
    precision=st.sampled_from(Precision),
    batch=st.none() | counts,
    accumulation=st.none() | counts,
)


@given(any_knobs)
def test_knobs_read_from_json_equal_those_written(knobs: Knobs) -> None:
    assert Knobs.from_dict(json.loads(json.dumps(knobs.to_dict()))) == knobs


@given(any_knobs, any_knobs)
def test_changes_list_only_the_knobs_that_differ(before: Knobs, after: Knobs) -> None:
    changes = after.changes_from(before)
    assert {**before.to_dict(), **{name: new for name, (_, new) in changes.items()}} == after.to_dict()
    assert all(old != new for old, new in changes.values())


def test_the_contract_has_eleven_knobs() -> None:
    names = "lr clip growth_interval precision batch accumulation params skip constants fp32_modules matmul"
    assert tuple(names.split()) == KNOB_NAMES


@given(any_knobs)
def test_an_asked_knob_took_effect_if_the_job_reports_the_same_value(knobs: Knobs) -> None:
    assert not_taken(knobs, knobs.to_dict()) == {}


@given(positive)
def test_the_format_of_a_float_is_not_a_difference(value: float) -> None:
    assert same_value(value, float(f"{value:g}"))
    assert same_value(value, float(repr(value)))


@pytest.mark.parametrize(
    ("asked", "effective"),
    [(1e-3, 1.01e-3), (1.0, None), (1.0, "off"), (1.0, math.nan), (0.5, math.inf), (2000, 2001), ("fp32", "amp_fp16")],
)
def test_a_different_value_is_a_difference(asked: Any, effective: Any) -> None:
    assert not same_value(asked, effective)


def test_knobs_that_did_not_take_effect_are_shown_with_both_values() -> None:
    asked = Knobs(lr=5e-4, growth_interval=8000)
    ignored = not_taken(asked, {"lr": 1e-3, "growth_interval": 2000, "precision": "amp_fp16"})
    assert ignored == {"lr": (5e-4, 1e-3), "growth_interval": (8000, 2000)}


def test_a_clip_that_stays_off_did_not_take_effect() -> None:
    assert not_taken(Knobs(clip=1.0), {"clip": None}) == {"clip": (1.0, None)}


def test_a_knob_that_the_job_does_not_report_is_not_a_difference() -> None:
    assert not_taken(Knobs(lr=1.0, clip=2.0), {}) == {}


@pytest.mark.parametrize("precision", [p for p in Precision if p is not Precision.AMP_FP16])
def test_growth_interval_is_not_compared_without_a_scaler(precision: Precision) -> None:
    asked = Knobs(growth_interval=5000, precision=precision)
    assert not_taken(asked, {"growth_interval": 2000}) == {}
    assert not_taken(asked.but(precision=Precision.AMP_FP16), {"growth_interval": 2000})


@pytest.mark.parametrize("zero_edit", [False, True])
def test_a_knob_without_a_value_has_one_of_two_words(zero_edit: bool) -> None:
    off = {name for name in KNOB_NAMES if no_value_text(name, zero_edit=zero_edit) == "off"}
    assert off == {"skip", "constants", "fp32_modules", *(() if zero_edit else ("clip",))}
    assert {no_value_text(name, zero_edit=zero_edit) for name in KNOB_NAMES} == {"off", "not set"}
