"""Owns the proof of the knobs on Accelerate, and that without any it trains bit for bit as it would alone."""

import pytest


@pytest.fixture(scope="module")
def told(frameworks, once):
    return once("accelerate", lambda: frameworks("with_accelerate.py"))


def test_with_no_knob_asked_the_weights_are_bit_for_bit_the_same(told):
    assert told["same"]["weights"] == told["without"]["weights"]


@pytest.mark.parametrize(
    ("name", "dtype", "word", "effective"),
    [
        ("fp32", "float32", "no", "fp32"),
        ("native_fp16", "float16", "no", "native_fp16"),
        ("bf16", "float32", "bf16", "bf16"),
        ("params", "float32", "fp16", "amp_fp16"),
    ],
)
def test_a_half_model_that_fails_by_itself_trains_in_the_precision_asked(told, name, dtype, word, effective):
    assert told[name]["dtypes"] == [f"torch.{dtype}"] and told[name]["word"] == word
    assert told.knobs(name)["precision"] == effective


def test_accumulation_is_asked_and_a_clip_is_put_in_where_the_script_has_none(told):
    assert told["arguments"]["accumulation"] == 2
    assert [told.knobs("arguments")[name] for name in ("clip", "accumulation")] == ["0.25", "2"]


def test_a_saved_state_is_told_and_the_chosen_one_is_loaded_in_place_of_the_script_s(told):
    assert told.records("saved", "same") == ["step=8 file=state_8"]
    assert told["resumed"]["weights"] == told["own_load"]["weights"] != told["without"]["weights"]
    assert told.records("resumed", "resumed") == ["step=8 file=state_8"]


def test_the_replay_is_in_fp32_although_the_model_enters_autocast_in_its_own_forward(told):
    assert "weights=finite inputs=finite fp32=finite" in told.records("replay", "too_large")[0]
