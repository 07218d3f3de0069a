"""Tests audio-lora: FP16 adapters under a scaler fail at the first update, and native FP16 trains them."""

import json
import os
import signal

import pytest

from tests import pace
from tests.catalog.conftest import metric

NAME = "audio-lora"
FAULT = "Attempting to unscale FP16 gradients."


def recovered_as_well_as_fp32(lab, options=""):
    story = lab.run(lab.catalog(NAME, options))
    first, last = story["attempts"][0], story["attempts"][-1]
    assert story["job"]["state"] == "SUCCEEDED", story["job"]["reason"]
    assert first["fault"]["kind"] == "unscale_error"
    assert first["fault"]["evidence"] == f"ValueError: {FAULT}"
    assert [attempt["rung"] for attempt in story["attempts"]] == [None, "native_fp16"]
    assert last["effective"]["precision"] == "native_fp16" and not last["not_taken"]
    assert last["effective"]["clip"] == 1.0, "the script's own"
    assert metric(story) == pytest.approx(lab.fp32_metric(NAME, options), rel=0.01)


@pytest.mark.long
@pytest.mark.sample
def test_native_fp16_is_the_first_rung_and_reaches_the_metric_of_fp32(lab):
    recovered_as_well_as_fp32(lab)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_native_fp16_reaches_the_metric_of_fp32_with_other_data_too(lab, seed):
    recovered_as_well_as_fp32(lab, f"--seed {seed}")


@pytest.mark.long
def test_with_fp32_adapters_the_job_trains_in_fp16_without_a_fault(lab):
    story = lab.run(lab.catalog(NAME, "--fixed"))
    assert story["job"]["state"] == "SUCCEEDED", story["job"]["reason"]
    assert len(story["attempts"]) == 1
    assert story["attempts"][0]["effective"]["precision"] == "amp_fp16"
    assert metric(story) == pytest.approx(lab.fp32_metric(NAME), rel=0.01)


@pytest.mark.long
def test_a_killed_run_resumes_from_its_checkpoint(lab, wait_until):
    name = lab.submit(lab.catalog(NAME, "--fixed"))
    controller = lab.controller()
    folder = lab.folder / "home" / "jobs" / name
    wait_until(lambda: list((folder / "checkpoints").glob("checkpoint-*/trainer_state.json")))
    os.killpg(json.loads((folder / "attempts" / "1" / "running.json").read_text())["group"], signal.SIGKILL)
    assert pace.wait(controller, 300) == 0
    story = lab.history(name)
    assert story["job"]["state"] == "SUCCEEDED", story["job"]["reason"]
    assert [attempt["rung"] for attempt in story["attempts"]] == [None, None]
    assert story["attempts"][1]["resumed_step"] in (50, 100, 150)
    assert metric(story) == pytest.approx(lab.fp32_metric(NAME), rel=0.01)
