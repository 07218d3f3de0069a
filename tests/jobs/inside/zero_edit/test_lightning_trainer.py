"""Tests the knobs on Lightning's Trainer, and that a training without knobs is the same bit for bit."""

import pytest

PACKAGES = ["lightning.pytorch", pytest.param("pytorch_lightning", marks=pytest.mark.long)]


@pytest.fixture(scope="module", params=PACKAGES)
def trained(frameworks, request, once):
    return once(request.param, lambda: frameworks("with_lightning.py", request.param))


def test_without_knobs_the_weights_are_the_same_bit_for_bit_with_manual_optimization_too(trained):
    assert trained["same"]["weights"] == trained["without"]["weights"]
    assert trained["by_hand"]["weights"] == trained["without_by_hand"]["weights"]


@pytest.mark.parametrize(
    ("name", "dtype", "setting", "effective"),
    [
        ("fp32", "float32", "32-true", "fp32"),
        ("native_fp16", "float16", "32-true", "native_fp16"),
        ("bf16", "float32", "bf16-mixed", "bf16"),
        ("params", "float32", "16-mixed", "amp_fp16"),
        ("from_true", "float32", "32-true", "fp32"),
    ],
)
def test_an_fp16_module_that_fails_without_rung_trains_in_the_asked_precision(trained, name, dtype, setting, effective):
    assert trained[name]["dtypes"] == [f"torch.{dtype}"] and trained[name]["setting"] == setting
    assert trained.knobs(name)["precision"] == effective


def test_the_clip_of_the_trainer_is_tightened_or_inserted_if_there_is_none(trained):
    assert trained["tightened"]["arguments"] == [0.25, 2] and trained.knobs("tightened")["accumulation"] == "2"
    for name in ("tightened", "clip_by_hand", "clip_in_fp32"):
        assert trained.knobs(name)["clip"] == "0.25"


def test_each_update_is_counted_once(trained):
    assert trained["same"]["updates"] == 8 and trained["by_hand"]["updates"] == 8


def test_a_saved_file_is_reported_and_fit_resumes_from_the_chosen_one(trained):
    assert trained.records("saved", "saved") == ["step=4 file=half-way.ckpt"]
    assert trained["resumed"]["first"] == 4
    assert trained.records("resumed", "resumed") == ["step=4 file=half-way.ckpt"]


def test_checkpoints_without_a_folder_of_the_scripts_go_to_the_jobs_if_its_pattern_is_for_them(trained):
    folder = trained["own_folder"]["folder"]
    assert trained.records("saved", "own_folder") == ['step=8 file="epoch=0-step=8.ckpt"']
    assert trained["script_folder"]["folder"] == f"{folder}/script"
    assert trained["other_pattern"]["folder"] == f"{folder}/checkpoints"


def test_rungs_own_checkpoints_are_refused_in_words_and_the_training_goes_on_as_it_is(trained):
    (said,) = trained.records("not_whole", "by_rung")
    assert "Rung saves no checkpoints of this run: the Trainer of Lightning fetches its batches ahead" in said
    assert trained.records("saved", "by_rung") == [] and not trained["by_rung"]["saved"]
    assert trained["by_rung"]["weights"] == trained["without"]["weights"]


def test_lightning_does_not_queue_its_job_in_slurm_again(trained):
    assert (trained["slurm_without"]["requeues"], trained["slurm"]["requeues"]) == ([True], [False])
