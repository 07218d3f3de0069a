"""Tests that a rung without effect is undone: FP32 runs with the clip and lr of the job file."""

import pytest


@pytest.mark.long
def test_fp32_runs_with_the_original_lr_after_a_useless_lower_lr(lab):
    history = lab.run(lab.job("fp16_range", recovery={"trials": "off"}))
    attempts = history["attempts"]
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    assert [a["rung"] for a in attempts] == [None, "raise_clip", "lower_lr", "fp32"]
    assert attempts[2]["asked"]["lr"] == 0.005 and attempts[2]["asked"]["clip"] is None
    assert attempts[3]["asked"] == {**attempts[0]["asked"], "precision": "fp32"}
    assert [item["rung"] for item in attempts[2]["undone"]] == ["raise_clip"]
    assert [item["rung"] for item in attempts[3]["undone"]] == ["lower_lr"]
    assert "made no difference" in attempts[3]["undone"][0]["reason"]
