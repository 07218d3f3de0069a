"""Tests with the trackers themselves that their curves are whole after a kill and after a NaN: no step twice.

They are test-only and large, so they are in folders of their own, which `make test-sample` and `make test-long` fill.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flow.conftest import Lab
from tests.trackers.folders import ALL, TENSORBOARD

SCRIPT = Path(__file__).parent / "trainings" / "tracked.py"
READER = Path(__file__).parents[1] / "trackers" / "read_curves.py"
STEPS = list(range(1, 51))


def run(lab: Lab, folders: list[Path], used: str, **fields: Any) -> dict[str, Any]:
    missing = [folder.name for folder in folders if not (folder / "ready").exists()]
    assert not missing, f"not installed: tests/trackers/{missing[0]}.txt; `make test-long` does that"
    path = ":".join(map(str, folders))
    envs = {"PYTHONPATH": path, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
    spec = {
        "name": "tracked",
        "run": f"python tracked.py --dir {{checkpoint_dir}} --trackers {used}",
        "envs": {**envs, "MLFLOW_TRACKING_URI": f"file:{lab.folder}/mlruns", "MLFLOW_DISABLE_TELEMETRY": "true"},
        "knobs": {"mode": "zero-edit"},
        "recovery": {"trials": "off", "early_warning": "off", "ladder": [{"raise_clip": [1.0]}], "infra_retries": 2},
        **fields,
    }
    history = lab.run(lab.write(spec, SCRIPT))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    ends = [((each["fault"] or {}).get("kind"), each["planned_step"]) for each in history["attempts"]]
    nan_and_cured = [("nan_loss", 10 if "--kill" in used else None), (None, 30)]
    assert ends == ([("infra_fault", None), *nan_and_cured] if "--kill" in used else nan_and_cured)
    return history


def read(lab: Lab, folders: list[Path], what: str) -> Any:
    """Return what the tracker's own code reads of a run's files, in a process that has it."""
    done = subprocess.run(
        [sys.executable, READER, what, lab.folder],
        env={**lab.env, "PYTHONPATH": ":".join(map(str, folders)), "MLFLOW_ALLOW_FILE_STORE": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def printed(lab: Lab, history: dict[str, Any]) -> dict[int, float]:
    """Return the loss of each step as the last attempt that made it printed it."""
    found = {}
    for attempt in history["attempts"]:
        for line in lab.log(history["job"]["id"], attempt["number"]).splitlines():
            if line.startswith("step "):
                _, step, _, loss = line.split()
                found[int(step)] = float(loss)
    return found


def check_tensorboard(lab: Lab, history: dict[str, Any], folders: list[Path]) -> None:
    curves = read(lab, folders, "tensorboard")
    assert set(curves) == {"curves loss", "curves/parts_all parts", "curves options/text_summary"}
    for name in ("curves loss", "curves/parts_all parts"):
        steps, losses = zip(*curves[name], strict=True)
        assert list(steps) == STEPS
        assert losses == pytest.approx([printed(lab, history)[step] for step in STEPS], rel=1e-6)
    # What is written at step 0 is not taken for the first value after the resume.
    assert [step for step, _ in curves["curves options/text_summary"]] == [0] * len(history["attempts"])


@pytest.mark.long
@pytest.mark.sample
def test_tensorboard_shows_one_curve(lab: Lab) -> None:
    check_tensorboard(lab, run(lab, [TENSORBOARD], "tensorboard"), [TENSORBOARD])


@pytest.mark.long
def test_all_three_show_whole_curves(lab: Lab) -> None:
    folders = [ALL, TENSORBOARD]
    history = run(lab, folders, "tensorboard,wandb,mlflow --kill")
    check_tensorboard(lab, history, folders)

    job, losses = history["job"]["id"], printed(lab, history)
    runs = read(lab, folders, "wandb")
    assert [(each["group"], each["name"], each["tags"]) for each in runs] == [
        (job, f"{job} attempt 1", []),
        (job, f"{job} attempt 2", ["infra_fault"]),
        (job, f"{job} attempt 3", ["nan_loss", "raise_clip"]),
    ]
    # A killed process loses what it has not yet handed over to W&B's own one.
    first, second, third = (each["steps"] for each in runs)
    assert first == list(range(1, len(first) + 1)) and second == list(range(11, 37)) and third == list(range(31, 51))

    # A kill: the run goes on, and has each step once. A rung: a new one, since options may differ.
    kept, cured = read(lab, folders, "mlflow")
    assert [step for step, _ in kept["loss"]] == list(range(1, 37)) == [step for step, _ in kept["half"]]
    assert [loss for _, loss in kept["loss"][:30]] == pytest.approx([losses[step] for step in range(1, 31)], rel=1e-6)
    assert [step for step, _ in cured["loss"]] == list(range(31, 51))
    assert kept["tags"] == {"rung.job": job, "rung.attempt": "1"}
    assert cured["tags"] == {
        "rung.job": job, "rung.attempt": "3", "rung.fault": "nan_loss", "rung.rung": "raise_clip",
    }  # fmt: skip
    links = [[link for link in each["links"] if link.startswith("runs:/")] for each in history["attempts"]]
    assert links == [[f"runs:/{kept['id']}"], [f"runs:/{kept['id']}"], [f"runs:/{cured['id']}"]]


@pytest.mark.long
def test_off_leaves_the_curves_as_the_script_writes_them(lab: Lab) -> None:
    run(lab, [TENSORBOARD], "tensorboard", trackers="off")
    steps = [step for step, _ in read(lab, [TENSORBOARD], "tensorboard")["curves loss"]]
    assert steps == [*range(1, 37), *range(31, 51)]
