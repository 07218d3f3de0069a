"""Tests the knobs on live objects of scripts that do not know Rung."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

FAIL = ("half_alone", "by_hand")
RESUMED = {"RUNG_CHECKPOINT": "FOLDER/step_100.pt", "RUNG_CHECKPOINT_STEP": "100"}
LOWER = {"lr": 0.005}
CASES: dict[str, Any] = {
    **{kind: (kind, LOWER) for kind in ("sgd", "adamw", "sign", "covered", "tensor")},
    **{f"{kind}_by_hand": (f"{kind}_by_hand", None) for kind in ("sgd", "adamw", "sign", "covered", "tensor", "lbfgs")},
    "lbfgs": ("lbfgs", {"lr": 0.05}),
    "first_skipped": ("first_skipped", {"lr": 0.005, "clip": 0.1}),
    "two_optimizers": ("two_optimizers", {"lr": 0.01}),
    "two_alone": ("two_optimizers", {}),
    "inserted": ("unclipped", {"clip": 0.1}),
    "inserted_amp": ("unclipped_amp", {"clip": 0.1}),
    "inserted_fused": ("unclipped_fused", {"clip": 0.1}),
    "fused": ("unclipped_fused", {}),
    "fused_alone": ("unclipped_fused", None),
    "tightened": ("clipped_to_one", {"clip": 0.1}),
    "tightened_on_frozen": ("clipped_on_a_frozen_base", {"clip": 0.1}),
    "tighter_already": ("clipped_to_little", {"clip": 0.1}),
    "by_value": ("clipped_by_value", {"clip": 0.001}),
    "huge": ("huge_half_gradients", {"precision": "native_fp16"}),
    "left_out": ("counted", {"skip": "3-5"}),
    "left_out_resumed": ("counted_on", {"skip": "103-104"}, RESUMED),
    "left_out_plain": ("counted_plain", {"skip": "2-2"}),
    "own": ("amp_script", {}),
    "interval": ("amp_script", {"growth_interval": 7}),
    **{f"amp_{to}": ("amp_script", {"precision": to}) for to in ("fp32", "native_fp16", "bf16")},
    "half_alone": ("half_script", {}),
    **{f"half_{to}": ("half_script", {"precision": to}) for to in ("fp32", "native_fp16")},
    "half_params": ("half_script", {"params": "fp32"}),
    **{f"pure_{to}": ("pure_half_script", {"precision": to}) for to in ("fp32", "native_fp16", "bf16")},
    "decorated": ("decorated", {"precision": "bf16"}),
    "no_autocast": ("no_autocast", {"precision": "bf16"}),
    "adapter": ("adapter_on_half_base", {"params": "fp32"}),
    "mixed": ("many_dtypes", {"precision": "native_fp16"}),
    **{f"targets_{to}": ("half_targets", {"precision": to}) for to in ("fp32", "native_fp16", "bf16")},
    "not_finite": ("not_finite_once", {"precision": "native_fp16"}),
    "native_closure": ("adam_closure", {"precision": "native_fp16"}),
    "native_lbfgs": ("lbfgs", {"precision": "native_fp16"}),
    "left_alone": ("left_alone", {}),
    "by_hand": ("half_by_hand", {}),
    "by_hand_fp32": ("half_by_hand", {"precision": "fp32"}),
    "pieces": ("in_pieces", {}),
    "pieces_alone": ("in_pieces", None),
    "broken": ("with_a_broken_part", LOWER),
    "sgd_alone": ("sgd", None),
}


@pytest.fixture(scope="module")
def trained(train: Callable[..., Any], once: Callable[..., Any]) -> Any:
    return once("knobs", lambda: train(CASES, "trainings", "precision_trainings"))


def test_no_hook_of_rung_failed(trained: Any) -> None:
    assert {name: got.error for name, got in trained.items() if got.error and name not in FAIL} == {}
    noted = {name: got.records("note") for name, got in trained.items() if got.records("note")}
    assert set(noted) == {"broken"}


def test_a_hook_that_fails_writes_one_note_and_its_knob_is_not_applied(trained: Any) -> None:
    broken = trained["broken"]
    assert broken.result == trained["sgd_alone"].result
    assert broken.knobs["lr"] == "0.05"
    [note] = broken.records("note")
    assert "ZeroDivisionError" in note["text"]


@pytest.mark.parametrize("kind", ["sgd", "adamw", "sign", "covered", "tensor", "lbfgs"])
def test_an_asked_lr_trains_as_if_the_script_had_it(trained: Any, kind: str) -> None:
    asked, by_hand = trained[kind].result, trained[f"{kind}_by_hand"].result
    assert asked["weights"] == pytest.approx(by_hand["weights"], rel=1e-4, abs=1e-6)
    assert float(trained[kind].knobs["lr"]) == pytest.approx(0.05 if kind == "lbfgs" else 0.005)


def test_a_knob_that_an_update_sets_is_not_reported_before_one_is_made(trained: Any) -> None:
    """A scaler that skipped the first update made the first record say that the lr was not taken."""
    first, *_, last = trained["first_skipped"].records("knobs")
    assert "lr" not in first and "clip" not in first and first["growth_interval"] == "2000"
    assert (last["lr"], last["clip"]) == ("0.005", "0.1")
    assert {each["lr"] for each in trained["first_skipped"].records("knobs") if "lr" in each} == {"0.005"}


def test_the_script_its_schedule_and_its_checkpoints_see_their_own_lr(trained: Any) -> None:
    assert trained["sgd"].result["lr"] == 0.05
    assert trained["sgd"].result["last"] == 0.1


def test_the_lr_factor_applies_to_all_optimizers_and_only_the_first_reports(trained: Any) -> None:
    assert trained["two_optimizers"].result["rate"] == pytest.approx(0.001, rel=1e-3)
    assert trained["two_alone"].records("knobs") == [{"lr": "0.1", "clip": "1.0", "precision": "fp32"}]


@pytest.mark.parametrize("name", ["inserted", "inserted_amp", "inserted_fused", "tightened", "tightened_on_frozen"])
def test_a_clip_is_inserted_or_tightened_after_unscaling(trained: Any, name: str) -> None:
    assert trained[name].result == pytest.approx([0.1] * 4, rel=0.02)
    assert trained[name].knobs["clip"] == "0.1"


def test_a_fused_optimizer_unscales_as_without_rung(trained: Any) -> None:
    assert trained["fused"].result == trained["fused_alone"].result
    assert len(trained["fused"].records("step")) == 4


def test_a_tighter_clip_of_the_script_stays(trained: Any) -> None:
    assert trained["tighter_already"].result == pytest.approx([0.01] * 4, rel=0.02)
    assert trained["tighter_already"].knobs["clip"] == "0.01"


def test_a_clip_by_value_is_tightened(trained: Any) -> None:
    assert max(trained["by_value"].result) <= 0.001 * (8 * 32 + 32 + 32 + 1) ** 0.5
    assert trained["by_value"].knobs["clip"] == "0.001"


def test_fp16_gradients_of_any_norm_are_clipped_and_not_zeroed(trained: Any) -> None:
    assert trained["huge"].result["norm"] == pytest.approx(30000 * 1000**0.5, rel=1e-3)
    assert trained["huge"].result["clipped"] == pytest.approx(1.0, rel=1e-2)


def still(moved: list[float]) -> list[int]:
    return [number for number, length in enumerate(moved, 1) if length == 0]


def test_updates_are_skipped_by_number_and_the_scaler_still_updates(trained: Any) -> None:
    assert still(trained["left_out"].result["moved"]) == [3, 4, 5]
    assert trained["left_out"].result["scale"] == 8.0 * 2**4
    assert trained["left_out"].knobs["skip"] == "3-5"
    assert still(trained["left_out_plain"].result["moved"]) == [2]


def test_skipped_updates_are_counted_from_the_start_of_the_run_after_a_resume(trained: Any) -> None:
    assert still(trained["left_out_resumed"].result["moved"]) == [3, 4]


def test_a_script_without_knobs_keeps_its_values_and_growth_interval_changes_alone(trained: Any) -> None:
    own = trained["own"]
    assert own.knobs == {"lr": "0.01", "clip": "5.0", "growth_interval": "2000", "precision": "amp_fp16"}
    assert (own.result["seen"], own.result["enabled"]) == (["torch.float16"], True)
    assert trained["interval"].knobs["growth_interval"] == "7"
    assert trained["interval"].result["losses"] == own.result["losses"]


@pytest.mark.parametrize("name", ["amp_fp32", "half_fp32", "pure_fp32"])
def test_fp32_computes_and_stores_everything_in_fp32_without_a_scaler(trained: Any, name: str) -> None:
    got = trained[name].result
    assert (got["seen"], got["dtypes"]) == (["torch.float32"], ["torch.float32"])
    assert (got["enabled"], got["scale"], got["unchanged"]) == (False, 1.0, True)
    assert trained[name].knobs["precision"] == "fp32"
    assert "growth_interval" not in trained[name].knobs
    assert got["losses"] == pytest.approx(trained["amp_fp32"].result["losses"], rel=1e-2)


@pytest.mark.parametrize("name", ["amp_native_fp16", "half_native_fp16", "pure_native_fp16"])
def test_native_fp16_has_fp16_weights_and_an_fp32_optimizer_state(trained: Any, name: str) -> None:
    got = trained[name].result
    assert (got["seen"], got["dtypes"]) == (["torch.float16"], ["torch.float16"])
    assert got["state"] == "{'torch.float32'}"
    assert trained[name].knobs["precision"] == "native_fp16"
    assert got["losses"] == pytest.approx(trained["amp_fp32"].result["losses"], rel=2e-2)


@pytest.mark.parametrize("name", ["amp_bf16", "decorated", "no_autocast", "pure_bf16"])
def test_bf16_computes_in_bfloat16_without_a_scaler(trained: Any, name: str) -> None:
    assert trained[name].result["seen"] == ["torch.bfloat16"]
    assert trained[name].result.get("enabled", False) is False
    assert trained[name].knobs["precision"] == "bf16"


def test_fp32_parameters_cure_the_unscale_error_and_keep_amp(trained: Any) -> None:
    assert trained["half_alone"].error == "ValueError: Attempting to unscale FP16 gradients."
    got = trained["half_params"]
    assert (got.result["seen"], got.result["trained"]) == (["torch.float16"], ["torch.float32"])
    assert (got.result["enabled"], got.knobs["params"], got.knobs["precision"]) == (True, "fp32", "amp_fp16")


def test_a_frozen_fp16_base_stays_fp16_under_fp32_adapters(trained: Any) -> None:
    assert trained["adapter"].result["trained"] == ["torch.float32"]
    assert trained["adapter"].result["dtypes"] == ["torch.float16", "torch.float32"]


def test_mixed_dtypes_in_a_native_fp16_model_are_cast_and_its_results_are_fp32(trained: Any) -> None:
    got = trained["mixed"].result
    assert got["out"] == ["torch.float32"] * 2
    assert (got["linear"], got["norm"]) == ("torch.float16", ["torch.float32"] * 2)


def test_fp16_targets_and_averaged_weights_work_in_every_precision(trained: Any) -> None:
    dtypes = {"fp32": "torch.float32", "native_fp16": "torch.float16", "bf16": "torch.float32"}
    for to, dtype in dtypes.items():
        assert trained[f"targets_{to}"].result == {"dtype": dtype, "average": "torch.float32"}


def test_native_fp16_skips_an_update_whose_gradients_are_not_finite(trained: Any) -> None:
    assert still(trained["not_finite"].result["moved"]) == [2]


def test_fp32_also_changes_casts_to_fp16_in_the_forward_pass(trained: Any) -> None:
    assert "without overflow" in trained["by_hand"].error
    assert trained["by_hand_fp32"].knobs["precision"] == "fp32"


def test_compiled_scripted_and_recomputing_models_train_as_without_rung(trained: Any) -> None:
    assert trained["pieces"].result == trained["pieces_alone"].result
    steps = [record["step"] for record in trained["pieces"].records("step")]
    assert steps == [str(number) for number in range(1, 10)]


def test_native_fp16_works_with_closures(trained: Any) -> None:
    assert trained["native_closure"].result["dtype"] == "torch.float16"
    assert trained["native_lbfgs"].result["dtype"] == "torch.float16"


def test_rung_leaves_nothing_in_models_or_their_files(trained: Any) -> None:
    assert trained["left_alone"].result == {"ours": False, "call": "_wrapped_call_impl", "layer": "_wrapped_call_impl"}
