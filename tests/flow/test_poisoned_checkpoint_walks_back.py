"""Tests that a relaunch skips the poisoned checkpoints of a run that became NaN between two log lines."""

import pytest
import torch

from tests.flow.conftest import Lab


def verdicts_in(history):
    verified = (event["data"] for event in history["events"] if event["kind"] == "checkpoint")
    return {data["file"]: data["verdict"] for data in verified}


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory, once):
    """Return the history of one recovery and the folder of its checkpoints; the recovery runs once for all workers."""
    return once("poisoned", lambda: recovered(Lab(tmp_path_factory.mktemp("poisoned"))))


def recovered(lab):
    """Run a job whose weights are NaN from step 41 on, and in whose folder two files were never whole.

    The log shows the NaN at step 80, so the files of step 50 to 80 hold NaN.
    """
    name = lab.submit(lab.job("weights_nan", "--log-every 80 --steps 160", recovery={"ladder": ["fp32"]}))
    folder = lab.folder / "home" / "jobs" / name / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "step_45.pt").write_bytes(b"not a checkpoint at all")
    torch.save({"step": 44, "model": {"w": torch.zeros(1000)}}, folder / "whole.pt")
    (folder / "step_44.pt").write_bytes((folder / "whole.pt").read_bytes()[:900])
    lab.rung("controller", "--until-idle")
    return lab.history(name), folder


def test_a_relaunch_resumes_from_the_newest_checkpoint_that_is_not_poisoned(poisoned):
    history, _ = poisoned
    first, second = history["attempts"]
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    assert second["resumed_from"] == "step_40.pt"
    assert second["resumed_step"] == 40
    assert "stepped over: step_70.pt is poisoned, step_60.pt is poisoned, step_50.pt is poisoned" in second["because"]
    verdicts = verdicts_in(history)
    assert verdicts["step_70.pt"] == "poisoned" and verdicts["step_40.pt"] == "healthy"
    assert first["steps_lost"] == first["furthest_step"] - 40


def test_poisoned_truncated_and_unreadable_files_are_not_deleted(poisoned):
    history, folder = poisoned
    assert history["attempts"][1]["resumed_from"] == "step_40.pt"
    verdicts = verdicts_in(history)
    assert verdicts["step_45.pt"] != "healthy" and verdicts["step_44.pt"] != "healthy"
    assert (folder / "step_45.pt").read_bytes() == b"not a checkpoint at all"
    assert (folder / "step_44.pt").stat().st_size == 900


@pytest.mark.long
def test_without_a_healthy_checkpoint_the_relaunch_starts_from_scratch_with_the_reason(lab):
    job = lab.job("weights_nan", "--log-every 20 --save-every 1000", recovery={"ladder": ["fp32"]})
    second = lab.run(job)["attempts"][1]
    assert second["resumed_from"] is None
    assert "from scratch: the job has written no checkpoint" in second["because"]
