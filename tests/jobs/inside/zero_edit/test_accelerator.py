"""Tests the knobs on Accelerate, and that a training without knobs is the same bit for bit."""

import pytest


@pytest.fixture(scope="module")
def trained(frameworks, once):
    return once("accelerate", lambda: frameworks("with_accelerate.py"))


def test_without_knobs_the_weights_are_the_same_bit_for_bit(trained):
    assert trained["same"]["weights"] == trained["without"]["weights"]


@pytest.mark.parametrize(
    ("name", "dtype", "setting", "effective"),
    [
        ("fp32", "float32", "no", "fp32"),
        ("native_fp16", "float16", "no", "native_fp16"),
        ("bf16", "float32", "bf16", "bf16"),
        ("params", "float32", "fp16", "amp_fp16"),
    ],
)
def test_an_fp16_model_that_fails_without_rung_trains_in_the_asked_precision(trained, name, dtype, setting, effective):
    assert trained[name]["dtypes"] == [f"torch.{dtype}"] and trained[name]["setting"] == setting
    assert trained.knobs(name)["precision"] == effective


def test_asked_accumulation_is_applied_and_a_clip_is_inserted_if_the_script_has_none(trained):
    assert trained["arguments"]["accumulation"] == 2
    assert [trained.knobs("arguments")[name] for name in ("clip", "accumulation")] == ["0.25", "2"]


def test_a_saved_state_is_reported_and_the_chosen_state_replaces_the_one_of_the_script(trained):
    assert trained.records("saved", "same") == ["step=8 file=state_8"]
    assert trained["resumed"]["weights"] == trained["own_load"]["weights"] != trained["without"]["weights"]
    assert trained.records("resumed", "resumed") == ["step=8 file=state_8"]


def test_the_replay_is_in_fp32_even_if_the_forward_pass_enters_autocast(trained):
    assert "weights=finite inputs=finite fp32=finite" in trained.records("replay", "too_large")[0]


def test_a_place_is_in_fp32_although_the_forward_pass_enters_autocast(trained):
    assert trained.knobs("in_fp32")["fp32_modules"] == "Linear,loss"
    assert trained.records("places", "in_fp32")[-1] == "updates=8 ran=Linear:8,loss:8 saturated=0"
    assert "loss=nan" in trained.records("step", "too_large")[0]
    first = trained.records("step", "in_fp32")[0]
    assert "loss=inf" not in first and "loss=nan" not in first and first.endswith("skipped=0")
