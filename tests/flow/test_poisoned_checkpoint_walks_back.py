"""A run that turns NaN between two log lines leaves poisoned checkpoints behind; the relaunch steps over them."""

import pytest
import torch


def verdicts_in(story):
    told = (event["data"] for event in story["events"] if event["kind"] == "checkpoint")
    return {data["file"]: data["verdict"] for data in told}


def test_newest_checkpoints_are_poisoned_and_the_one_before_them_is_used(lab):
    # The weights are NaN from step 41 on, the log says so at step 80: the files of step 50 to 80 hold NaN.
    ladder = {"ladder": ["fp32"]}
    story = lab.run(lab.job("weights_nan", "--log-every 80 --steps 160", recovery=ladder))
    first, second = story["attempts"]
    assert story["job"]["state"] == "SUCCEEDED", story["job"]["reason"]
    assert second["resumed_from"] == "step_40.pt"
    assert second["resumed_step"] == 40
    assert "stepped over: step_70.pt is poisoned, step_60.pt is poisoned, step_50.pt is poisoned" in second["because"]
    verdicts = verdicts_in(story)
    assert verdicts["step_70.pt"] == "poisoned" and verdicts["step_40.pt"] == "healthy"
    assert first["steps_lost"] == first["furthest_step"] - 40


def test_poisoned_truncated_and_unreadable_files_are_never_deleted(lab):
    job = lab.job("weights_nan", "--log-every 80 --steps 160", recovery={"ladder": ["fp32"]})
    name = lab.submit(job)
    folder = lab.folder / "home" / "jobs" / name / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "step_45.pt").write_bytes(b"not a checkpoint at all")
    torch.save({"step": 44, "model": {"w": torch.zeros(1000)}}, folder / "whole.pt")
    (folder / "step_44.pt").write_bytes((folder / "whole.pt").read_bytes()[:900])
    lab.rung("controller", "--until-idle")
    story = lab.history(name)
    assert story["attempts"][1]["resumed_from"] == "step_40.pt"
    verdicts = verdicts_in(story)
    assert verdicts["step_45.pt"] != "healthy" and verdicts["step_44.pt"] != "healthy"
    assert (folder / "step_45.pt").read_bytes() == b"not a checkpoint at all"
    assert (folder / "step_44.pt").stat().st_size == 900


@pytest.mark.long
def test_no_healthy_checkpoint_means_from_scratch_and_the_history_says_so(lab):
    job = lab.job("weights_nan", "--log-every 20 --save-every 1000", recovery={"ladder": ["fp32"]})
    second = lab.run(job)["attempts"][1]
    assert second["resumed_from"] is None
    assert "from scratch: the job has written no checkpoint" in second["because"]
