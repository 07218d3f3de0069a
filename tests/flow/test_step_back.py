"""Tests that a cured run goes back to its fast precision once, without a scaler state, and falls back to FP32."""

from __future__ import annotations

from pathlib import Path

import pytest

BAD_STRETCHES = Path(__file__).parent / "trainings" / "bad_stretches.py"


@pytest.mark.long
def test_a_cured_run_steps_back_to_amp_and_falls_back_to_fp32_when_the_fault_returns(lab):
    spec = {
        "name": "bad",
        "run": "python bad_stretches.py",
        "knobs": {"mode": "inside", "lr": 0.01},
        "checkpoint": {"every": 20},
        "recovery": {"ladder": ["fp32"], "max_attempts": 2, "step_back": "after 400 clean steps"},
    }
    history = lab.run(lab.write(spec, BAD_STRETCHES))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    faulty, cured, back, again = history["attempts"]
    assert [each["asked"]["precision"] for each in history["attempts"]] == ["amp_fp16", "fp32", "amp_fp16", "fp32"]
    assert [each["rung"] for each in history["attempts"]] == [None, "fp32", None, None]
    assert [each["stepped_back"] for each in history["attempts"]] == [False, False, True, False]
    # The cured run was healthy when it was stopped, and lost only a few steps.
    assert (cured["outcome"], cured["recovered"], cured["fault"]) == ("stopped", True, None)
    assert cured["furthest_step"] >= faulty["fault"]["step"] + 400
    assert back["resumed_step"] > faulty["fault"]["step"] + 300
    assert "clean steps since the fault" in back["because"]
    # FP32 saves no scaler state; AMP resumed without one and trained with a working scaler.
    assert back["effective"]["precision"] == "amp_fp16" and back["effective"]["growth_interval"] == 2000
    assert back["fault"]["step"] >= back["resumed_step"] + 40
    # It falls back at once to the cure, from before the new fault; this does not count as a tried rung.
    assert back["resumed_step"] <= again["resumed_step"] < back["fault"]["step"]
    assert again["asked"] == cured["asked"] and "after stepping back" in again["because"]
    assert [event["kind"] for event in history["events"]].count("stepping_back") == 1
    shown = lab.rung("history", history["job"]["id"])
    assert "attempt 3 on localhost: step back" in shown and "attempt 4 on localhost: back to what had cured it" in shown
