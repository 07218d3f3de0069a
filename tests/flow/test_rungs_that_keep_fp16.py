"""Tests that jobs which can be cured in one place recover and stay in FP16, by their own ladder and by the default."""

from pathlib import Path

import pytest

from tests.gauntlet.case import CASES

CLAMP, NET = "clamp_constants", {"fp32_modules": ["Net"]}


@pytest.mark.parametrize(
    ("script", "ladder", "rung", "knob", "value"),
    [
        ("mask_constant", [CLAMP], "clamp_constants", "constants", "clamp"),
        # The default ladder comes to the same cure, below.
        pytest.param("layernorm_by_hand", [NET], "fp32_modules", "fp32_modules", "Net", marks=pytest.mark.long),
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


@pytest.mark.long
@pytest.mark.sample
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


@pytest.mark.long
@pytest.mark.sample
def test_a_script_in_plain_fp16_stays_there_with_fp32_values_for_its_optimizer(lab):
    job = {
        "name": "native-half",
        "run": f"python {CASES / 'native_half_adam'}.py --steps 60 --out {{checkpoint_dir}} --resume {{checkpoint}}",
        "knobs": {"mode": "zero-edit"},
        "recovery": {"trials": "off"},
    }
    history = lab.run(lab.write(job, Path(CASES / "native_half_adam.py")))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    assert [attempt["rung"] for attempt in history["attempts"]] == [None, "native_fp16"]
    plain, cured = history["attempts"]
    assert plain["asked"]["precision"] is None and plain["fault"]["replay"]["weights"] == "nonfinite"
    assert plain["effective"]["precision"] == cured["effective"]["precision"] == cured["asked"]["precision"]
    assert cured["asked"]["precision"] == "native_fp16" and not cured["not_taken"] and cured["fault"] is None
    assert "native_fp16 (native_fp16 with FP32 values for the optimizer)" in cured["because"]


@pytest.mark.long
@pytest.mark.sample
def test_a_script_that_calls_its_layers_one_by_one_is_not_stopped_for_its_data(lab):
    job = {
        "name": "layers",
        "run": "python layer_by_layer.py",
        "knobs": {"mode": "zero-edit"},
        "recovery": {"trials": "off", "ladder": ["fp32"]},
    }
    history = lab.run(lab.write(job, Path(__file__).parent / "trainings" / "layer_by_layer.py"))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    failed, cured = history["attempts"]
    assert (failed["fault"]["step"], failed["fault"]["replay"]["inputs"]) == (21, "unknown")
    assert cured["rung"] == "fp32" and cured["fault"] is None
