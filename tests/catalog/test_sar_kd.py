"""Tests sar-kd: logits beyond FP16 make the loss NaN from the first batch on, and FP32 reaches its goal."""

import sys

import pytest

from tests import pace
from tests.catalog.conftest import CATALOG, metric

NAME = "sar-kd"
ISSUE = "Numerical issue: total_loss=nan, kd=0.0000, ce=nan"


def assert_nan_and_recovery(lab, options=""):
    story = lab.run(lab.catalog(NAME, options))
    attempts, log = story["attempts"], lab.log(story["job"]["id"], 1)
    assert story["job"]["state"] == "SUCCEEDED", f"{story['job']['reason']}\n{log[-3000:]}"
    fault = attempts[0]["fault"]
    assert fault["kind"] == "nan_loss" and ISSUE in fault["evidence"]
    assert "avg_loss" not in log, "some batch had a finite loss"
    assert [attempt["rung"] for attempt in attempts] == [None, "fp32"]
    assert "success_rate=100%" in lab.log(story["job"]["id"], 2)
    assert metric(story) == pytest.approx(lab.fp32_metric(NAME, options), rel=0.01)


# Always run in a container, by tests/fleet/test_field_reports.py.
@pytest.mark.long
def test_fp32_is_the_first_rung_and_cures_the_nan_of_the_first_batch(lab):
    assert "rung" not in (CATALOG / NAME / "train.py").read_text().lower()
    assert_nan_and_recovery(lab)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_fp32_cures_the_fault_with_another_seed_too(lab, seed):
    assert_nan_and_recovery(lab, f"--seed {seed}")


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_fixed_settings_train_in_fp16_without_a_fault(lab, seed):
    story = lab.run(lab.catalog(NAME, f"--seed {seed} --fixed"))
    assert story["job"]["state"] == "SUCCEEDED" and len(story["attempts"]) == 1
    assert story["attempts"][0]["asked"]["precision"] == "amp_fp16"
    assert metric(story) == pytest.approx(lab.fp32_metric(NAME, f"--seed {seed}"), rel=0.01)


@pytest.mark.long
def test_without_rung_the_script_gives_up_after_ten_bad_batches(tmp_path):
    words = [sys.executable, str(CATALOG / NAME / "train.py"), "--output_dir", str(tmp_path)]
    done = pace.run(words, capture_output=True, text=True, usual=300, check=False)
    assert done.returncode == 1 and done.stdout.count(ISSUE) == 10
    assert "Too many NaN batches, stopping training (success_rate=0%)" in done.stdout
    assert "Final validation perplexity: nan" in done.stdout


@pytest.mark.long
def test_the_script_resumes_from_its_checkpoint_with_the_lr_it_is_given(tmp_path):
    words = [
        sys.executable,
        str(CATALOG / NAME / "train.py"),
        "--model_dtype",
        "float32",
        "--output_dir",
        str(tmp_path),
    ]
    whole = pace.run(words, capture_output=True, text=True, usual=300, check=True).stdout
    words += ["--resume", str(tmp_path / "step_200.pt")]
    resumed = pace.run(words, capture_output=True, text=True, usual=300, check=True).stdout
    assert "at step 200" in resumed and "Step 200:" not in resumed
    assert whole.splitlines()[-1] == resumed.splitlines()[-1]
    words += ["--student_lr", "0", "--router_lr", "0"]
    still = pace.run(words, capture_output=True, text=True, usual=300, check=True).stdout
    assert whole.splitlines()[-1] != still.splitlines()[-1]
