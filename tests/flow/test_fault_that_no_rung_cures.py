"""Tests that a job which no rung cures fails with a diagnosis."""

import pytest


@pytest.mark.parametrize(
    ("trials", "rungs"),
    # A second lr that fails at the same step shows that the lr is not the cause, and no trial is made twice.
    [
        ("on", ["lower_lr", "raise_clip", "lower_lr", "fp32"]),
        pytest.param("off", ["raise_clip", "lower_lr", "fp32"], marks=pytest.mark.long),
    ],
)
def test_nan_in_fp32_at_the_same_step_names_the_model_or_the_data_as_the_cause(lab, trials, rungs):
    history = lab.run(lab.job("data_bug", recovery={"trials": trials}))
    assert history["job"]["state"] == "FAILED"
    assert [a["rung"] for a in history["attempts"]] == [None, *rungs]
    assert {a["fault"]["step"] for a in history["attempts"]} == {41}
    assert "NaN in FP32 too, at step 41" in history["job"]["reason"]
    assert "the model or the data" in history["job"]["reason"]
    assert history["attempts"][-1]["asked"]["lr"] == 0.05


def test_an_unknown_exit_is_retried_once_and_then_reported_with_its_last_line(lab):
    history = lab.run(lab.job("none", "--no-such-flag"))
    assert history["job"]["state"] == "FAILED"
    assert len(history["attempts"]) == 2
    assert all(a["fault"]["kind"] == "unknown_exit" for a in history["attempts"])
    assert "unrecognized arguments: --no-such-flag" in history["attempts"][-1]["fault"]["evidence"]


def test_exit_code_0_without_the_metric_is_no_success(lab):
    history = lab.run(lab.job("none", success={"metric": "val_loss", "below": 1e-9}))
    assert history["job"]["state"] == "FAILED"
    assert "not below 1e-09" in history["job"]["reason"]
    assert history["attempts"][0]["outcome"] == "fell_short"
