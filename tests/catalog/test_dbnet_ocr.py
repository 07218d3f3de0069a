"""Tests dbnet-ocr: the loss is NaN in FP16 from the first step on, and FP32 cures it at once without loss."""

import pytest

from tests.catalog.conftest import CATALOG, metric

NAME = "dbnet-ocr"


def assert_nan_at_once_and_recovers(lab, options=""):
    story = lab.run(lab.catalog(NAME, options))
    attempts, log = story["attempts"], lab.log(story["job"]["id"], 1)
    assert story["job"]["state"] == "SUCCEEDED", f"{story['job']['reason']}\n{log[-3000:]}"
    fault = attempts[0]["fault"]
    assert fault["kind"] == "nan_loss" and fault["step"] == 1
    assert "train/loss=nan" in fault["evidence"]
    assert [attempt["rung"] for attempt in attempts] == [None, "fp32"]
    assert attempts[1]["asked"] == {**attempts[0]["asked"], "precision": "fp32"}, "nothing but the precision changes"
    assert metric(story) == pytest.approx(lab.fp32_metric(NAME, options), rel=0.01)


@pytest.mark.long
@pytest.mark.sample
def test_fp32_is_the_first_rung_and_cures_the_nan(lab):
    assert "rung" not in (CATALOG / NAME / "train.py").read_text().lower()
    assert_nan_at_once_and_recovers(lab)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_fp32_cures_the_fault_with_another_seed_too(lab, seed):
    assert_nan_at_once_and_recovers(lab, f"seed={seed}")


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_with_fp32_losses_the_job_trains_in_fp16_without_a_fault(lab, seed):
    story = lab.run(lab.catalog(NAME, f"seed={seed} --fixed"))
    assert story["job"]["state"] == "SUCCEEDED" and len(story["attempts"]) == 1
    assert metric(story) == pytest.approx(lab.fp32_metric(NAME, f"seed={seed}"), rel=0.01)
