"""Tests the knobs on Accelerate, and that a training without knobs is the same bit for bit."""

import pytest


@pytest.fixture(scope="module")
def trained(frameworks, once):
    return once("accelerate", lambda: frameworks("with_accelerate.py"))


def test_with_no_knob_asked_the_weights_are_bit_for_bit_the_same(trained):
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
def test_a_half_model_that_fails_by_itself_trains_in_the_precision_asked(trained, name, dtype, setting, effective):
    assert trained[name]["dtypes"] == [f"torch.{dtype}"] and trained[name]["setting"] == setting
    assert trained.knobs(name)["precision"] == effective


def test_accumulation_is_asked_and_a_clip_is_put_in_where_the_script_has_none(trained):
    assert trained["arguments"]["accumulation"] == 2
    assert [trained.knobs("arguments")[name] for name in ("clip", "accumulation")] == ["0.25", "2"]


def test_a_saved_state_is_reported_and_the_chosen_one_is_loaded_in_place_of_the_script_s(trained):
    assert trained.records("saved", "same") == ["step=8 file=state_8"]
    assert trained["resumed"]["weights"] == trained["own_load"]["weights"] != trained["without"]["weights"]
    assert trained.records("resumed", "resumed") == ["step=8 file=state_8"]


def test_the_replay_is_in_fp32_although_the_model_enters_autocast_in_its_own_forward(trained):
    assert "weights=finite inputs=finite fp32=finite" in trained.records("replay", "too_large")[0]
