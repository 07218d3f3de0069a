"""Owns the proof of the knobs on transformers' Trainer, and of a training bit for bit the same without any."""

import pytest


@pytest.fixture(scope="module")
def told(frameworks, once):
    return once("huggingface", lambda: frameworks("with_huggingface.py"))


def test_with_no_knob_asked_the_weights_are_bit_for_bit_the_same_and_nan_is_not_hidden(told):
    assert told["same"]["weights"] == told["without"]["weights"]
    assert told["without"]["arguments"][3] is True and told["same"]["arguments"][3] is False


@pytest.mark.parametrize(
    ("name", "dtype", "flags", "effective"),
    [
        ("fp32", "float32", [False, False, "no"], "fp32"),
        ("native_fp16", "float16", [False, False, "no"], "native_fp16"),
        ("bf16", "float32", [False, True, "bf16"], "bf16"),
        ("params", "float32", [True, False, "fp16"], "amp_fp16"),
    ],
)
def test_a_half_model_that_fails_by_itself_trains_in_the_precision_asked(told, name, dtype, flags, effective):
    assert told[name]["dtype"] == f"torch.{dtype}" and told[name]["flags"] == flags
    assert told.knobs(name)["precision"] == effective


def test_clip_batch_and_accumulation_become_the_arguments(told):
    assert told["arguments"]["arguments"][:3] == [0.25, 4, 2]
    assert [told.knobs("arguments")[name] for name in ("clip", "batch", "accumulation")] == ["0.25", "4", "2"]


def test_saved_folders_are_told_and_train_goes_on_from_the_one_chosen(told):
    assert told.records("saved", "same") == ["step=4 file=checkpoint-4", "step=8 file=checkpoint-8"]
    assert told["resumed"]["first"] == 4 and told["resumed"]["weights"] == told["without"]["weights"]
    assert told.records("resumed", "resumed") == ["step=4 file=checkpoint-4"]


def test_a_newest_checkpoint_that_was_passed_over_is_not_resumed(told):
    assert told["anew"]["first"] == 0
