"""Tests that a resume keeps the knobs, native FP16 learns like FP32, and without knobs no bit changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LOWER = {"lr": 0.005}
CASES: dict[str, Any] = {
    "begin": ("begin", None),
    "plain": ("go_on", None),
    "lower": ("go_on", LOWER),
    "interval": ("go_on", {"growth_interval": 8000}),
    "native": ("go_on", {"precision": "native_fp16"}),
    "half": ("go_on_half", {"precision": "native_fp16"}),
    "half_fp32": ("go_on_half", {"precision": "fp32"}),
    "half_params": ("go_on_half", {"params": "fp32"}),
    "scales": ("spoil_scale", {}),
    "without": ("all_kinds", None),
    "with": ("all_kinds", {}),
    "fp32": ("regression", {"precision": "fp32"}),
    "native_fp16": ("regression", {"precision": "native_fp16"}),
}


@pytest.fixture(scope="module")
def trained(train: Callable[..., Any], once: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = str(tmp_path_factory.mktemp("checkpoints"))
    cases = {name: (*case, {"CHECKPOINTS": folder}) for name, case in CASES.items()}
    return once("resume", lambda: train(cases, "resumed_trainings"))


def test_no_training_failed_and_none_wrote_a_note(trained: Any) -> None:
    assert {name: got.error for name, got in trained.items() if got.error} == {}
    assert {name: got.records("note") for name, got in trained.items() if got.records("note")} == {}


def test_without_knobs_the_weights_are_the_same_bit_for_bit(trained: Any) -> None:
    assert trained["with"].result == trained["without"].result
    assert trained["with"].records("knobs")


def schedule(lr: float) -> list[float]:
    return [lr * min(1.0, (step + 1) / 8) for step in range(4, 12)]


def test_loading_the_optimizer_and_the_schedule_keeps_the_asked_lr(trained: Any) -> None:
    assert trained["plain"].result["used"] == pytest.approx(schedule(0.05))
    assert trained["lower"].result["used"] == pytest.approx(schedule(0.005))
    assert {record["lr"] for record in trained["lower"].records("knobs")} == {"0.005"}


def test_the_asked_lr_is_not_in_the_scripts_checkpoint_or_schedule(trained: Any) -> None:
    assert trained["lower"].result["saved"] == trained["plain"].result["saved"] == 0.05
    assert trained["lower"].result["base"] == [0.05]


@pytest.mark.parametrize("name", ["plain", "lower", "native"])
def test_eps_and_betas_of_the_script_stay(trained: Any, name: str) -> None:
    assert trained[name].result["own"] == [0.05, 0.05, 1e-8, 0.8, 0.9]


def test_loading_the_scaler_keeps_the_asked_growth_interval(trained: Any) -> None:
    assert trained["plain"].result["interval"] == 2000
    assert trained["interval"].result["interval"] == 8000
    assert trained["interval"].knobs["growth_interval"] == "8000"
    assert trained["interval"].result["scale"] == 1024.0


def test_a_collapsed_or_missing_scale_starts_at_its_initial_value(trained: Any) -> None:
    assert trained["scales"].result == [65536.0, 65536.0, 65536.0, 512.0]


@pytest.mark.parametrize("name", ["native", "half", "half_fp32", "half_params"])
def test_an_fp32_state_of_adam_stays_fp32(trained: Any, name: str) -> None:
    got, begun = trained[name].result, trained["begin"].result
    assert got["state"] == "torch.float32"
    assert got["second"] == pytest.approx(begun["second"], rel=1e-6)
    assert got["smallest"] == begun["smallest"]
    assert got["finite"]
    assert got["dtype"] == ("torch.float16" if name in ("native", "half") else "torch.float32")


def close(trained: Any, model: str = "") -> float:
    fp32, native = trained[f"{model}fp32"], trained[f"{model}native_fp16"]
    assert (fp32.knobs["precision"], native.knobs["precision"]) == ("fp32", "native_fp16")
    return float(native.result / fp32.result - 1)


def test_native_fp16_reaches_the_loss_of_fp32(trained: Any) -> None:
    assert abs(close(trained)) < 0.005


@pytest.mark.long
@pytest.mark.parametrize("model", ["pictures", "letters"])
def test_native_fp16_reaches_the_loss_of_fp32_on_other_models(train: Callable[..., Any], model: str) -> None:
    done = train(
        {precision: (model, {"precision": precision}) for precision in ("fp32", "native_fp16")},
        "resumed_trainings",
    )
    assert {name: got.error for name, got in done.items() if got.error} == {}
    assert abs(close(done)) < 0.005
