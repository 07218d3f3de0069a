"""Tests that a cured run goes back to its fast precision once, and takes places in FP32 off one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

TRAININGS = Path(__file__).parent / "trainings"
BAD_STRETCHES, TWO_PLACES = TRAININGS / "bad_stretches.py", TRAININGS / "two_places.py"


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


@pytest.mark.long
def test_places_in_fp32_are_taken_off_one_by_one_and_only_the_one_that_is_needed_comes_back(lab):
    spec = {
        "name": "places",
        "run": "python two_places.py",
        "knobs": {"mode": "inside", "lr": 0.01},
        "checkpoint": {"every": 20},
        "recovery": {
            "ladder": [{"fp32_modules": ["head", "body"]}],
            "max_attempts": 2,
            "step_back": "after 200 clean steps",
        },
    }
    history = lab.run(lab.write(spec, TWO_PLACES))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    _, cured, shorter, without, again = attempts = history["attempts"]
    lists = [None, "head,body", "head", None, "head"]
    assert [each["asked"]["fp32_modules"] for each in attempts] == lists
    # What really ran in FP32, read back from each attempt.
    assert [each["effective"].get("fp32_modules") for each in attempts] == lists
    assert all(each["effective"]["precision"] == "amp_fp16" and not each["not_taken"] for each in attempts)
    assert [each["stepped_back"] for each in attempts] == [False, False, True, True, False]
    assert [each["outcome"] for each in attempts] == ["fault", "stopped", "stopped", "fault", "succeeded"]
    assert shorter["furthest_step"] >= shorter["resumed_step"] + 200
    assert "stepping back (body in FP16 again; head stays in FP32)" in shorter["because"]
    assert "clean steps since the step back" in without["because"]
    assert "FP32 in head again, for good" in again["because"]
    assert [each["saturation"]["saturated"] for each in (cured, shorter, again)] == [0, 0, 0]
    shown = lab.rung("history", "--diff", history["job"]["id"])
    rows = [line.split() for line in shown.splitlines() if line.startswith("  fp32_modules")]
    assert rows == [["fp32_modules", "asked", each, "effective", each] for each in lists if each]
