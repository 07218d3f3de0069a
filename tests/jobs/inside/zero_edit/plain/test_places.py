"""Tests the places that compute in FP32 while the rest of a script stays in FP16."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from rung.jobs.model.saturation import Saturation
from rung.recovery.logs.line_reader import read

FP16, FP32, WIDE_IN_FP16 = "float16 float16", "float32 float32", "float32 float16"
CASES: dict[str, Any] = {
    "plain": ("blocks", {}),
    "own": ("blocks", {"fp32_modules": "block"}),
    "whole": ("blocks", {"fp32_modules": "block.*"}),
    "loss": ("blocks", {"fp32_modules": "loss"}),
    "model": ("blocks", {"fp32_modules": "Model,block,loss"}),
    "unknown": ("blocks", {"fp32_modules": "head,block"}),
    "bf16": ("blocks", {"fp32_modules": "block", "precision": "bf16"}),
    "overflows": ("overflowing", {}),
    "cured": ("overflowing", {"fp32_modules": "block,Model"}),
    "saturated": ("beyond", {"fp32_modules": "block"}),
    "passed_on": ("beyond", {"fp32_modules": "block,Model"}),
    "checkpointed": ("checkpointed", {"fp32_modules": "block"}),
    "pickled": ("pickled", {"fp32_modules": "block,loss"}),
    "fp32_alone": ("in_fp32", None),
    "fp32_asked": ("in_fp32", {"fp32_modules": "block,Model.*,loss", "constants": "clamp"}),
    "two_calls": ("losses_of_two", {"fp32_modules": "loss"}),
    "two_calls_plain": ("losses_of_two", {}),
    "entering": ("entering", {"fp32_modules": "Entering"}),
    "half": ("half_model", {}),
    "half_own": ("half_model", {"fp32_modules": "block,Model"}),
    "native": ("overflowing", {"fp32_modules": "block,Model", "precision": "native_fp16"}),
    "clamped": ("masked", {"constants": "clamp"}),
    "not_clamped": ("masked", {}),
}


@pytest.fixture(scope="module")
def trained(train: Callable[..., Any], once: Callable[..., Any]) -> Any:
    return once("places", lambda: train(CASES, "place_trainings"))


def last_places(got: Any) -> dict[str, str]:
    return got.records("places")[-1]  # type: ignore[no-any-return]


def test_only_the_script_without_a_place_fails(trained: Any) -> None:
    assert {name for name, got in trained.items() if got.error} == {"not_clamped"}
    assert {name for name, got in trained.items() if got.records("note")} == {"unknown"}


def test_the_own_code_of_a_module_is_in_fp32_and_its_children_stay_in_fp16(trained: Any) -> None:
    assert trained["plain"].result["seen"]["own"] == [WIDE_IN_FP16]
    seen = trained["own"].result["seen"]
    assert (seen["own"], seen["child"], seen["handed back"]) == ([FP32], [FP16], [FP32])
    assert (seen["after"], seen["loss"]) == ([WIDE_IN_FP16], [FP16])
    assert trained["own"].knobs["fp32_modules"] == "block"
    assert last_places(trained["own"]) == {"updates": "4", "ran": "block:4", "saturated": "0"}


def test_a_module_as_a_whole_is_in_fp32_with_its_children(trained: Any) -> None:
    seen = trained["whole"].result["seen"]
    assert (seen["own"], seen["child"], seen["after"]) == ([FP32], [FP32], [WIDE_IN_FP16])
    assert trained["whole"].knobs["fp32_modules"] == "block.*"


def test_the_code_after_the_model_is_in_fp32_up_to_the_backward_pass(trained: Any) -> None:
    seen = trained["loss"].result["seen"]
    assert (seen["own"], seen["child"], seen["loss"]) == ([WIDE_IN_FP16], [FP16], [FP32])
    assert (seen["after the step"], trained["loss"].knobs["fp32_modules"]) == ([FP32], "loss")
    assert trained["plain"].result["seen"]["loss"] == [FP16]


def test_a_second_call_of_the_model_has_the_autocast_of_the_script_and_the_code_between_has_not(trained: Any) -> None:
    plain, seen = trained["two_calls_plain"].result["seen"], trained["two_calls"].result["seen"]
    assert (plain["between"], plain["autocast of the loss"], plain["child"]) == ([FP16], [FP16], [FP16])
    assert (seen["between"], seen["autocast of the loss"], seen["child"]) == ([FP32], [FP32], [FP16])
    assert last_places(trained["two_calls"])["ran"] == "loss:8"


def test_a_place_hands_another_one_its_numbers_as_they_are(trained: Any) -> None:
    seen = trained["model"].result["seen"]
    assert (seen["own"], seen["child"], seen["after"], seen["loss"]) == ([FP32], [FP16], [FP32], [FP32])
    assert last_places(trained["model"])["ran"] == "Model:4,block:4,loss:4"
    assert trained["passed_on"].result["largest"] > 65504
    assert last_places(trained["passed_on"])["saturated"] == "0"


def test_numbers_that_leave_a_place_for_fp16_code_are_saturated_and_counted(trained: Any) -> None:
    got = trained["saturated"]
    assert got.result["largest"] == 65504 and last_places(got)["saturated"] == "4"
    record = " ".join(f"{name}={text}" for name, text in last_places(got).items())
    reading = read(f"rung| places {record}")
    assert reading is not None and reading.saturation == Saturation(4, 4)
    assert all(map(math.isfinite, got.result["gradients"])) and min(got.result["gradients"][2:4]) > 0


def test_a_module_that_overflows_trains_with_its_own_code_in_fp32(trained: Any) -> None:
    assert not all(map(math.isfinite, trained["overflows"].result["losses"]))
    losses = trained["cured"].result["losses"]
    assert all(map(math.isfinite, losses)) and last_places(trained["cured"])["ran"] == "block:4,Model:4"
    assert not any(float(step["skipped"]) for step in trained["cured"].records("step"))


def test_a_checkpointed_child_is_computed_again_as_it_was_computed_first(trained: Any) -> None:
    again, once = trained["checkpointed"].result, trained["own"].result
    assert again["seen"]["child"] == [FP16]
    assert again["gradients"] == once["gradients"] and again["weights"] == once["weights"]


def test_a_name_that_is_not_there_is_reported_with_the_places_that_ran(trained: Any) -> None:
    got = trained["unknown"]
    assert got.knobs["fp32_modules"] == "block"
    assert got.records("note")[0]["text"] == "head stays in FP16: there is no module of this name in the model"


def test_a_model_is_saved_as_without_rung(trained: Any) -> None:
    assert trained["pickled"].result == {"rung": False, "hooks": 0}
    assert trained["own"].result["keys"] == trained["plain"].result["keys"]


def test_in_fp32_and_bf16_nothing_changes_and_no_place_has_run(trained: Any) -> None:
    assert trained["fp32_asked"].result == trained["fp32_alone"].result
    assert trained["fp32_asked"].knobs["constants"] == "clamp"
    assert trained["bf16"].knobs["fp32_modules"] == "none"
    assert trained["bf16"].result["seen"]["own"] == ["float32 bfloat16"]


def test_an_autocast_that_a_place_enters_itself_is_for_its_children(trained: Any) -> None:
    seen = trained["entering"].result["seen"]
    assert (seen["own"], seen["child"]) == ([FP32], [FP16])
    assert trained["entering"].knobs["fp32_modules"] == "Entering"


def test_a_model_in_fp16_gets_fp32_copies_of_the_parameters_in_a_place(trained: Any) -> None:
    assert not all(map(math.isfinite, trained["half"].result["losses"]))
    got = trained["half_own"].result
    assert all(map(math.isfinite, [*got["losses"], *got["gradients"]])) and min(got["gradients"]) > 0
    assert (got["seen"]["own"], got["seen"]["child"], got["seen"]["after"]) == (["float32"], ["float16"], ["float32"])
    assert got["dtypes"] == ["torch.float16"] and got["mean"] > 0
    assert trained["half_own"].knobs["fp32_modules"] == "block,Model"


def test_places_work_with_asked_native_fp16(trained: Any) -> None:
    got = trained["native"]
    assert all(map(math.isfinite, got.result["losses"]))
    assert (got.knobs["precision"], got.knobs["fp32_modules"]) == ("native_fp16", "block,Model")


def test_constants_are_clamped_and_counted(trained: Any) -> None:
    assert "without overflow" in trained["not_clamped"].error
    assert trained["clamped"].result["lowest"] == -65504
    assert (trained["clamped"].knobs["constants"], last_places(trained["clamped"])["clamped"]) == ("clamp", "4")
