"""Tests that a job whose FP32 does not fit the memory ends with that reason, and loses no relaunch to find out."""

from tests.flow.conftest import TRAININGS


def test_a_replay_that_runs_out_of_memory_rules_fp32_out_before_it_is_tried(lab):
    job = {
        "name": "large",
        "run": "python large_in_fp32.py",
        "knobs": {"mode": "zero-edit"},
        "recovery": {"ladder": ["fp32"]},
    }
    history = lab.run(lab.write(job, TRAININGS / "large_in_fp32.py"))
    (attempt,) = history["attempts"]
    assert history["job"]["state"] == "FAILED" and attempt["fault"]["replay"]["fp32"] == "oom"
    assert attempt["effective"]["precision"].endswith("autocast_float16_no_scaler")
    reason = "FP32 as a whole does not fit the GPU's memory: the replay of step 1 ran out of it"
    assert f"no rung is left; {reason}" in history["job"]["reason"]
