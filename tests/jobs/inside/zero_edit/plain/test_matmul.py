"""Tests that the knob matmul decides whether FP32 computes matmuls in TF32, whatever the script sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# Matmuls in TF32, convolutions in TF32, and whether torch's precision of matmuls is "highest".
IN_TF32, IN_FP32, BY_DEFAULT = [True, True, False], [False, False, True], [False, True, True]
SCRIPTS = ("plain", "turns_it_on", "turns_it_off", "turns_it_on_by_new_names", "turns_it_off_by_new_names")
FP32 = {"precision": "fp32"}
CASES: dict[str, Any] = {
    **{f"{script} {asked}": (script, {**FP32, "matmul": asked}) for script in SCRIPTS for asked in ("tf32", "strict")},
    "not asked": ("plain", FP32),
    "alone": ("plain", None),
    "no knobs": ("plain", {}),
    "script's own": ("turns_it_on", FP32),
    "on_turing": ("on_turing", {**FP32, "matmul": "tf32"}),
    "on_the_cpu": ("on_the_cpu", {**FP32, "matmul": "tf32"}),
    "overridden": ("plain", {**FP32, "matmul": "tf32"}, {"NVIDIA_TF32_OVERRIDE": "0"}),
}


@pytest.fixture(scope="module")
def trained(train: Callable[..., Any], once: Callable[..., Any]) -> Any:
    return once("matmul", lambda: train(CASES, "matmul_trainings"))


def test_no_script_fails(trained: Any) -> None:
    assert not [name for name, got in trained.items() if got.error or got.records("note")]


@pytest.mark.parametrize(("asked", "settings"), [("tf32", IN_TF32), ("strict", IN_FP32)])
@pytest.mark.parametrize("script", SCRIPTS)
def test_what_is_asked_is_in_force_whatever_the_script_sets(
    trained: Any, script: str, asked: str, settings: list[bool]
) -> None:
    got = trained[f"{script} {asked}"]
    assert got.result["settings"] == settings
    assert (got.knobs["precision"], got.knobs["matmul"]) == ("fp32", asked)


@pytest.mark.parametrize("name", ["not asked", "alone", "no knobs"])
def test_where_it_is_not_asked_torch_keeps_its_own_settings(trained: Any, name: str) -> None:
    assert trained[name].result["settings"] == BY_DEFAULT
    assert name == "alone" or "matmul" not in trained[name].knobs


def test_where_it_is_not_asked_the_scripts_settings_stay(trained: Any) -> None:
    assert trained["script's own"].result["settings"] == IN_TF32
    assert "matmul" not in trained["script's own"].knobs


def test_without_knobs_no_bit_of_the_weights_changes(trained: Any) -> None:
    assert trained["no knobs"].result["weights"] == trained["alone"].result["weights"]


@pytest.mark.parametrize("name", ["on_turing", "on_the_cpu"])
def test_where_there_is_no_tf32_nothing_is_said_of_it(trained: Any, name: str) -> None:
    assert "matmul" not in trained[name].knobs


def test_a_variable_that_turns_tf32_off_below_torch_is_read_back(trained: Any) -> None:
    assert trained["overridden"].knobs["matmul"] == "strict"
