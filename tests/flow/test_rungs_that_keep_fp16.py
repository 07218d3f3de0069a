"""Tests that a job whose ladder names clamp_constants or fp32_modules recovers and stays in FP16."""

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
