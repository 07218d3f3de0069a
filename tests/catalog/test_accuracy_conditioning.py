"""Tests accuracy-conditioning: raw features overflow a half tensor, and clamped they train as well as in FP32."""

import pytest

from tests.catalog.conftest import CATALOG, metric

NAME = "accuracy-conditioning"
MESSAGE = "value cannot be converted to type"


def assert_overflows_and_recovers(lab, options=""):
    story = lab.run(lab.catalog(NAME, options))
    attempts, log = story["attempts"], lab.log(story["job"]["id"], 1)
    assert story["job"]["state"] == "SUCCEEDED", f"{story['job']['reason']}\n{log[-3000:]}"
    fault = attempts[0]["fault"]
    assert fault["kind"] == "fp16_overflow" and MESSAGE in fault["evidence"]
    assert "masked_fill" in fault["source"]
    assert "Loss scale reduced from 65536.0 to 32768.0 due to overflow" in log
    assert "overflow_count=" in log and "Epoch 2/" in log
    assert [attempt["rung"] for attempt in attempts] == [None, "clamp_constants"]
    assert attempts[1]["effective"]["precision"] == "amp_fp16" and not attempts[1]["not_taken"]
    assert attempts[1]["resumed_step"] == 120, "the two epochs before the fault were lost"
    assert metric(story) == pytest.approx(lab.fp32_metric(NAME, options), rel=0.01)


# Always run in a container, by tests/fleet/test_field_reports.py.
@pytest.mark.long
@pytest.mark.sample
def test_clamping_is_the_first_rung_and_cures_the_overflow_of_raw_features(lab):
    assert "rung" not in (CATALOG / NAME / "train.py").read_text().lower()
    assert_overflows_and_recovers(lab)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_clamping_cures_the_fault_with_another_seed_too(lab, seed):
    assert_overflows_and_recovers(lab, f"--seed {seed}")


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_fixed_module_trains_in_fp16_without_a_fault(lab, seed):
    story = lab.run(lab.catalog(NAME, f"--seed {seed} --fixed"))
    assert story["job"]["state"] == "SUCCEEDED" and len(story["attempts"]) == 1
    assert story["attempts"][0]["effective"]["precision"] == "amp_fp16"
    assert metric(story) == pytest.approx(lab.fp32_metric(NAME, f"--seed {seed}"), rel=0.01)
