"""A run that drifts away is stopped and cured before its loss is NaN; one that gets over its spikes is left alone."""

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


def test_a_slow_divergence_is_cured_from_before_its_onset_without_ever_being_nan(lab, job):
    story = lab.run(job("drift", 0.04))
    assert story["job"]["state"] == "SUCCEEDED"
    ill, cured = story["attempts"]
    fault = ill["fault"]
    assert fault["kind"] == "divergence" and fault["shape"] == "drift"
    assert fault["note"].startswith("loss about")
    assert "nan" not in lab.log(story["job"]["id"], 1)
    assert cured["rung"] == "lower_lr" and cured["asked"]["lr"] == pytest.approx(0.004)
    assert 0 < cured["resumed_step"] < fault["onset"] < fault["step"]
    assert cured["metrics"]["val_loss"] < 0.5


@pytest.mark.long
def test_the_same_run_goes_on_to_nan_where_the_warning_is_off(lab, job):
    story = lab.run(job("drift", 0.04, recovery={"early_warning": "off", "ladder": []}))
    (attempt,) = story["attempts"]
    assert attempt["fault"]["kind"] == "nan_loss"
    assert "loss nan" in lab.log(story["job"]["id"], 1)


def test_a_healthy_run_with_spikes_is_never_disturbed(lab, job):
    story = lab.run(job("spiky", 0.02))
    assert story["job"]["state"] == "SUCCEEDED" and story["job"]["recoveries"] == 0
    (attempt,) = story["attempts"]
    assert attempt["fault"] is None and attempt["furthest_step"] == 700
    losses = [float(line.split()[3]) for line in lab.log(story["job"]["id"], 1).splitlines() if " loss " in line]
    assert max(losses[100:]) > 10 * losses[-1], "the spikes are real"
