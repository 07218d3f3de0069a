"""Tests a script that overwrites its one checkpoint file and resumes only with another option: Rung keeps versions."""

from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parent / "trainings" / "one_file.py"
START = "python one_file.py --out_dir {checkpoint_dir}"
RESUME = f"{START} --init_from=resume"
ONE_FILE = {"pattern": "ckpt.pt"}
CLIP = {"ladder": [{"raise_clip": [1.0]}], "trials": "off", "early_warning": "off"}


def is_finite(path):
    weights = torch.load(path, weights_only=True)["model"]
    return all(each.isfinite().all() for each in weights.values())


def folder_of(lab, history):
    return lab.folder / "home" / "jobs" / history["job"]["id"]


@pytest.mark.long
@pytest.mark.sample
def test_without_an_edit_it_goes_on_from_the_version_before_the_fault(lab):
    spec = {"name": "one", "run": START, "run_on_resume": RESUME, "checkpoint": ONE_FILE, "recovery": CLIP}
    history = lab.run(lab.write({**spec, "knobs": {"mode": "zero-edit"}}, SCRIPT))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    _, second = history["attempts"]
    assert second["resumed_from"] == "ckpt.rung-step-40.pt"
    assert (second["resumed_step"], second["planned_step"], second["not_resumed"]) == (40, 40, None)
    folder = folder_of(lab, history) / "checkpoints"
    assert is_finite(folder / "ckpt.pt") and torch.load(folder / "ckpt.pt", weights_only=True)["iter_num"] == 120
    assert "rung| resumed step=40 file=ckpt.pt" in lab.log(history["job"]["id"], 2)


@pytest.mark.long
@pytest.mark.sample
def test_with_flags_the_file_is_kept_from_outside_and_the_poisoned_one_is_not_lost(lab):
    run = "{} --grad_clip={{clip}} --pause 0.5"
    spec = {"name": "one", "run": run.format(START), "run_on_resume": run.format(RESUME), "checkpoint": ONE_FILE}
    history = lab.run(lab.write({**spec, "knobs": {"clip": "off"}, "recovery": CLIP}, SCRIPT))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    _, second = history["attempts"]
    # A machine that is busy may not see every save.
    assert second["resumed_from"].startswith("ckpt.rung-t") and second["planned_step"] in (10, 20, 30, 40)
    assert second["first_step"] >= second["planned_step"] and second["not_resumed"] is None
    aside = folder_of(lab, history) / ".set-aside" / "attempt-2"
    assert not is_finite(aside / "ckpt.pt")
    started = [event["data"]["argv"] for event in history["events"] if event["kind"] == "started"]
    assert ["--init_from=resume" in argv for argv in started] == [False, True]
    kept = sorted((folder_of(lab, history) / "checkpoints").glob("ckpt.rung-*.pt"))
    assert 1 <= len(kept) <= 5


@pytest.mark.long
@pytest.mark.sample
def test_a_relaunch_that_does_not_load_its_checkpoint_is_named_everywhere(lab):
    # Too weak a clip, so that the fault comes back.
    knobs, recovery = {"mode": "zero-edit"}, {**CLIP, "ladder": [{"raise_clip": [1e9]}]}
    spec = {"name": "deaf", "run": START, "checkpoint": ONE_FILE, "knobs": knobs, "recovery": recovery}
    history = lab.run(lab.write(spec, SCRIPT))
    _, second = history["attempts"]
    said = "ckpt.rung-step-40.pt of step 40 was not loaded: it began at step 0"
    assert second["not_resumed"] == said
    assert history["job"]["state"] == "FAILED" and history["job"]["reason"].endswith(f"; in attempt 2, {said}")
    events = [(each["attempt"], each["data"]["because"]) for each in history["events"] if each["kind"] == "not_resumed"]
    assert events == [(2, said)]
    assert lab.row(history["job"]["id"])["not_resumed"] == said
    assert f"not resumed {said}" in lab.rung("history", history["job"]["id"])
    assert "a relaunch begins at step 0" in lab.rung("check", str(lab.folder / "job.yaml"), expect=1)


@pytest.mark.long
def test_trials_begin_with_the_file_in_folders_of_their_own(lab):
    recovery = {"ladder": [{"raise_clip": [1.0]}, {"lower_lr": [0.1]}], "early_warning": "off"}
    recovery["trials"] = {"candidates": 2, "steps": 100}
    run = [f"{each} --max_iters 600 --bad_batch 244" for each in (START, RESUME)]
    spec = {"name": "tried", "run": run[0], "run_on_resume": run[1], "checkpoint": ONE_FILE, "recovery": recovery}
    history = lab.run(lab.write({**spec, "knobs": {"mode": "zero-edit", "lr": 0.05}}, SCRIPT))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    trials = [each for each in history["attempts"] if each["trial"]]
    assert len(trials) >= 2 and {each["resumed_step"] for each in trials} == {240}
    assert len({each["stay"] for each in trials}) == len(trials), "each has a folder of its own"
    last = history["attempts"][-1]
    assert last["rung"] == "raise_clip" and last["not_resumed"] is None
    file = folder_of(lab, history) / "stays" / str(last["stay"]) / "checkpoints" / "ckpt.pt"
    assert is_finite(file) and torch.load(file, weights_only=True)["iter_num"] == 600
