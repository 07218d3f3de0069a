"""Tests mmgcn: log(sigmoid) by hand is NaN in FP16, and after a recovery the run reaches its FP32 metric."""

import pytest
import yaml

from tests.catalog.conftest import CATALOG, metric

NAME = "mmgcn"


def within_one_per_cent(value, reference):
    return value == pytest.approx(reference, rel=0.01)


def held_against_fp32(lab, options=""):
    """Run the job as it is and compare its metric with a run in FP32; return its history."""
    story = lab.run(lab.catalog(NAME, options))
    assert story["job"]["state"] == "SUCCEEDED", story["job"]["reason"]
    assert within_one_per_cent(metric(story), lab.fp32_metric(NAME, options.replace("--fixed", "")))
    return story


def assert_cured_by_fp32(lab, story):
    first, second = story["attempts"]
    assert first["fault"]["kind"] == "nan_loss"
    assert first["fault"]["evidence"] == "ValueError: Training loss is nan"
    assert first["fault"]["step"] == 2, "it is the first update that spoils the embeddings"
    assert second["rung"] == "fp32"
    assert "step 900/900" in lab.log(story["job"]["id"], 2)


@pytest.mark.long
@pytest.mark.sample
def test_the_loss_is_nan_in_fp16_and_the_key_in_the_config_file_switches_to_fp32(lab):
    story = held_against_fp32(lab)
    assert_cured_by_fp32(lab, story)
    own = lab.folder / f"{NAME}-1" / "config.yaml"
    assert own.read_text() == (CATALOG / NAME / "config.yaml").read_text(), "the person's own file was edited"
    edited = lab.folder / "home" / "jobs" / story["job"]["id"] / "attempts" / "2" / "work" / "config.yaml"
    changed = {"use_amp": False, "checkpoint_dir": str(lab.folder / "home" / "jobs" / f"{NAME}-1" / "checkpoints")}
    assert yaml.safe_load(edited.read_text()) == {**yaml.safe_load(own.read_text()), **changed}


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_the_job_fails_and_recovers_with_another_seed_too(lab, seed):
    assert_cured_by_fp32(lab, held_against_fp32(lab, f"--seed {seed}"))


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_fixed_code_trains_in_fp16_without_a_fault(lab, seed):
    story = held_against_fp32(lab, f"--fixed --seed {seed}")
    assert len(story["attempts"]) == 1
    assert story["attempts"][0]["asked"]["precision"] == "amp_fp16"
