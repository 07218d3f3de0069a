"""Tests a script that never saves: Rung saves for it from inside, and a relaunch goes on from there."""

import shutil
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parent / "trainings" / "never_saves.py"
TRAINER = SCRIPT.with_name("driven_by_trainer.py")
CLIP = {"ladder": [{"raise_clip": [1.0]}], "trials": "off", "early_warning": "off"}


def job(lab, options="", every=10, recovery=CLIP, **knobs):
    run = f"python {SCRIPT.name} {options}"
    spec = {"name": "unsaved", "run": run, "checkpoint": {"by": "rung", "every": every}, "recovery": recovery}
    return lab.write({**spec, "knobs": {"mode": "zero-edit", **knobs}}, SCRIPT)


def test_a_fault_late_in_the_run_costs_the_steps_since_rungs_own_checkpoint(lab):
    history = lab.run(job(lab))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    first, second = history["attempts"]
    assert first["fault"]["kind"] == "nan_loss"
    assert (second["resumed_from"], second["planned_step"]) == ("rung-step-40.pt", 40)
    assert (second["resumed_step"], second["first_step"], second["furthest_step"]) == (40, 41, 120)
    assert second["not_resumed"] is None and second["not_whole"] is None
    folder = lab.folder / "home" / "jobs" / history["job"]["id"] / "checkpoints"
    state = torch.load(folder / "rung-step-110.pt", weights_only=True)
    assert all(each.isfinite().all() for each in state["optimizer"][0]["parameters"])
    assert "a relaunch resumes: Rung saves and restores it every 10 updates" in lab.rung(
        "check", str(lab.folder / "job.yaml")
    )


def test_a_loop_whose_place_cannot_be_restored_says_so_in_the_history(lab):
    history = lab.run(job(lab, "--loop range"))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    _, second = history["attempts"]
    # All 120 steps of its loop come again.
    assert (second["resumed_step"], second["first_step"], second["furthest_step"]) == (40, 41, 160)
    said = "no DataLoader feeds this script, so its loop begins again at its first step"
    assert second["not_whole"].endswith(said)
    events = [(each["attempt"], each["data"]["because"]) for each in history["events"] if each["kind"] == "not_whole"]
    assert events == [(2, second["not_whole"])]
    assert said in lab.rung("history", history["job"]["id"])


def test_the_job_file_of_rung_init_lets_rung_save_for_a_script_that_saves_nothing(lab):
    script, job = lab.folder / "train.py", lab.folder / "job.yaml"
    shutil.copy(SCRIPT, script)
    lab.rung("init", str(script), "--", "--batches", "600", "--bad_batch", "544")
    assert "BAD" not in lab.rung("check", str(job))
    # Only so that it ends sooner: the file works as it is.
    with job.open("a") as file:
        file.write("recovery: {trials: off, early_warning: off, ladder: [{raise_clip: [1.0]}]}\n")
    told = lab.rung("launch", "-f", str(job))
    assert "resumed     at step 500: step 501 was seen" in told and "SUCCEEDED" in told
    _, second = lab.history("train")["attempts"]
    assert (second["resumed_from"], second["resumed_step"], second["furthest_step"]) == ("rung-step-500.pt", 500, 1200)
    assert second["not_resumed"] is None and second["not_whole"] is None


def test_a_trainer_is_refused_in_words_by_check_and_in_the_history(lab):
    spec = {"name": "driven", "run": f"python {TRAINER.name}", "checkpoint": {"by": "rung", "every": 5}}
    file = lab.write({**spec, "knobs": {"mode": "zero-edit"}}, TRAINER)
    said = "the Trainer of transformers fetches its batches ahead"
    assert f"BAD checkpoint.by: rung: {said}" in lab.rung("check", str(file), expect=1)
    history = lab.run(file)
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    (attempt,) = history["attempts"]
    assert attempt["not_whole"].startswith(f"Rung saves no checkpoints of this run: {said}")
    assert [each["data"]["because"] for each in history["events"] if each["kind"] == "not_whole"] == [
        attempt["not_whole"]
    ]
    assert said in lab.rung("history", "driven")
    assert not list(lab.folder.glob("home/jobs/*/checkpoints/*.pt"))


@pytest.mark.long
def test_trials_begin_at_rungs_own_checkpoint_in_folders_of_their_own(lab):
    recovery = {"ladder": [{"raise_clip": [1.0]}, {"lower_lr": [0.1]}], "early_warning": "off"}
    recovery["trials"] = {"candidates": 2, "steps": 100}
    history = lab.run(job(lab, "--batches 300 --bad_batch 244", 20, recovery, lr=0.05))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    trials = [each for each in history["attempts"] if each["trial"]]
    assert len(trials) >= 2 and {each["resumed_step"] for each in trials} == {240}
    assert len({each["stay"] for each in trials}) == len(trials), "each has a folder of its own"
    last = history["attempts"][-1]
    assert (last["rung"], last["furthest_step"]) == ("raise_clip", 600)
    assert last["not_resumed"] is None and last["not_whole"] is None
