"""Tests a script that overwrites its one checkpoint file and resumes only with another option: Rung keeps versions."""

from pathlib import Path

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


def test_with_flags_the_file_is_kept_from_outside_and_the_poisoned_one_is_not_lost(lab):
    run = "{} --grad_clip={{clip}} --pause 0.5"
    spec = {"name": "one", "run": run.format(START), "run_on_resume": run.format(RESUME), "checkpoint": ONE_FILE}
    history = lab.run(lab.write({**spec, "knobs": {"clip": "off"}, "recovery": CLIP}, SCRIPT))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    _, second = history["attempts"]
    # A machine that is busy may not see every save.
    assert second["resumed_from"].startswith("ckpt.rung-t") and second["planned_step"] in (10, 20, 30, 40)
    assert "poisoned" in second["because"] and second["first_step"] >= second["planned_step"]
    aside = folder_of(lab, history) / ".set-aside" / "attempt-2"
    assert not is_finite(aside / "ckpt.pt")
    started = [event["data"]["argv"] for event in history["events"] if event["kind"] == "started"]
    assert ["--init_from=resume" in argv for argv in started] == [False, True]
    kept = sorted((folder_of(lab, history) / "checkpoints").glob("ckpt.rung-*.pt"))
    assert 1 <= len(kept) <= 5
