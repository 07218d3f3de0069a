"""Tests the knobs on transformers' Trainer, and that a training without knobs is the same bit for bit."""

import pytest


@pytest.fixture(scope="module")
def trained(frameworks, once):
    return once("huggingface", lambda: frameworks("with_huggingface.py"))


def test_without_knobs_the_weights_are_the_same_bit_for_bit_and_nan_is_not_hidden(trained):
    assert trained["same"]["weights"] == trained["without"]["weights"]
    assert trained["without"]["arguments"][3] is True and trained["same"]["arguments"][3] is False


@pytest.mark.parametrize(
    ("name", "dtype", "flags", "effective"),
    [
        ("fp32", "float32", [False, False, "no"], "fp32"),
        ("native_fp16", "float16", [False, False, "no"], "native_fp16"),
        ("bf16", "float32", [False, True, "bf16"], "bf16"),
        ("params", "float32", [True, False, "fp16"], "amp_fp16"),
    ],
)
def test_an_fp16_model_that_fails_without_rung_trains_in_the_asked_precision(trained, name, dtype, flags, effective):
    assert trained[name]["dtype"] == f"torch.{dtype}" and trained[name]["flags"] == flags
    assert trained.knobs(name)["precision"] == effective


def test_clip_batch_and_accumulation_become_the_arguments(trained):
    assert trained["arguments"]["arguments"][:3] == [0.25, 4, 2]
    assert [trained.knobs("arguments")[name] for name in ("clip", "batch", "accumulation")] == ["0.25", "4", "2"]


def test_saved_folders_are_reported_and_train_resumes_from_the_chosen_one(trained):
    assert trained.records("saved", "same") == ["step=4 file=checkpoint-4", "step=8 file=checkpoint-8"]
    assert trained["resumed"]["first"] == 4 and trained["resumed"]["weights"] == trained["without"]["weights"]
    assert trained.records("resumed", "resumed") == ["step=4 file=checkpoint-4"]


def test_a_newest_checkpoint_that_was_rejected_is_not_resumed(trained):
    assert trained["anew"]["first"] == 0


def test_rungs_own_checkpoints_are_refused_in_words_and_the_training_goes_on_as_it_is(trained):
    (said,) = trained.records("not_whole", "by_rung")
    assert "Rung saves no checkpoints of this run: the Trainer of transformers fetches its batches ahead" in said
    assert trained.records("saved", "by_rung") == [] and not trained["by_rung"]["saved"]
    assert trained["by_rung"]["weights"] == trained["without"]["weights"]
