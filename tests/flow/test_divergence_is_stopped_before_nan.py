"""Tests that a diverging run is stopped and cured before its loss is NaN, and that a run with spikes is not stopped."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "trainings" / "course.py"
RUN = "python course.py --course {} --lr {{lr}} --dir {{checkpoint_dir}} --resume {{checkpoint}}"


@pytest.fixture
def job(lab):
    def write(course, lr, **fields):
        spec = {"name": course, "run": RUN.format(course), "knobs": {"lr": lr}, **fields}
        return lab.write({**spec, "success": {"metric": "val_loss", "below": 0.5}}, SCRIPT)

    return write


def test_a_slow_divergence_resumes_from_before_its_onset_and_is_cured_before_nan(lab, job):
    history = lab.run(job("drift", 0.04, recovery={"trials": "off"}))
    assert history["job"]["state"] == "SUCCEEDED"
    faulty, cured = history["attempts"]
    fault = faulty["fault"]
    assert fault["kind"] == "divergence" and fault["shape"] == "drift"
    assert fault["note"].startswith("loss about")
    assert "nan" not in lab.log(history["job"]["id"], 1)
    assert cured["rung"] == "lower_lr" and cured["asked"]["lr"] == pytest.approx(0.004)
    assert 0 < cured["resumed_step"] < fault["onset"] < fault["step"]
    assert cured["metrics"]["val_loss"] < 0.5


@pytest.mark.long
def test_the_same_run_becomes_nan_when_the_warning_is_off(lab, job):
    history = lab.run(job("drift", 0.04, recovery={"early_warning": "off", "ladder": []}))
    (attempt,) = history["attempts"]
    assert attempt["fault"]["kind"] == "nan_loss"
    assert "loss nan" in lab.log(history["job"]["id"], 1)


def test_a_healthy_run_with_spikes_is_not_stopped(lab, job):
    history = lab.run(job("spiky", 0.02))
    assert history["job"]["state"] == "SUCCEEDED" and history["job"]["recoveries"] == 0
    (attempt,) = history["attempts"]
    assert attempt["fault"] is None and attempt["furthest_step"] == 700
    losses = [float(line.split()[3]) for line in lab.log(history["job"]["id"], 1).splitlines() if " loss " in line]
    assert max(losses[100:]) > 10 * losses[-1], "the run has spikes"
