"""Tests that jobs which can be cured in one place recover and stay in FP16, by their own ladder and by the default."""

from pathlib import Path

import pytest

from tests.gauntlet.case import CASES

CLAMP, NET = "clamp_constants", {"fp32_modules": ["Net"]}


@pytest.mark.parametrize(
    ("script", "ladder", "rung", "knob", "value"),
    [
        ("mask_constant", [CLAMP], "clamp_constants", "constants", "clamp"),
        ("layernorm_by_hand", [NET], "fp32_modules", "fp32_modules", "Net"),
    ],
)
def test_a_named_rung_cures_the_place_and_not_the_whole_run(lab, script, ladder, rung, knob, value):
    job = {
        "name": script,
        "run": f"python {CASES / script}.py --out {{checkpoint_dir}} --resume {{checkpoint}}",
        "knobs": {"mode": "zero-edit"},
        "recovery": {"ladder": ladder},
    }
    history = lab.run(lab.write(job, Path(CASES / f"{script}.py")))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    cured = next(attempt for attempt in history["attempts"] if attempt["rung"] == rung)
    assert cured["asked"][knob] == cured["effective"][knob] == value
    assert cured["effective"]["precision"] == "amp_fp16" and not cured["not_taken"] and cured["fault"] is None
    assert f"{knob} {value}" in cured["because"]


@pytest.mark.parametrize(
    ("script", "rung", "knob", "value", "said"),
    [
        ("mask_constant", "clamp_constants", "constants", "clamp", "finite once its constants are clamped"),
        ("layernorm_by_hand", "fp32_modules", "fp32_modules", "Net", "the same step is finite with FP32 in Net only"),
    ],
)
def test_the_default_ladder_takes_the_cure_of_the_replay_with_one_relaunch(lab, script, rung, knob, value, said):
    job = {
        "name": script,
        "run": f"python {CASES / script}.py --out {{checkpoint_dir}} --resume {{checkpoint}}",
        "knobs": {"mode": "zero-edit"},
    }
    history = lab.run(lab.write(job, Path(CASES / f"{script}.py")))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    assert [attempt["rung"] for attempt in history["attempts"]] == [None, rung]
    cured = history["attempts"][-1]
    assert cured["asked"][knob] == cured["effective"][knob] == value
    assert cured["effective"]["precision"] == "amp_fp16" and not cured["not_taken"] and cured["fault"] is None
    assert said in cured["because"] and "stays FP16" in cured["because"]
