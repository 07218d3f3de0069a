"""Tests the hooks for trackers, with modules that stand in for TensorBoard's writer and for MLflow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., subprocess.CompletedProcess[str]]

# Writes what it is given, as TensorBoard's writer does with its protocol buffers.
WRITER = """
import types
class Event:
    def __init__(self, **fields):
        self.step, self.fields = 0, fields
        self.session_log = types.SimpleNamespace(status=None, START=1)
    def HasField(self, name):
        return name in self.fields
class FileWriter:
    def add_event(self, event, step=None, walltime=None):
        step = event.step if step is None else step
        print("event", "purge" if event.session_log.status == 1 else "value", step)
"""
# torch has the real one only where TensorBoard is installed; this folder comes before it.
WRITING = """
import torch.utils
torch.utils.__path__.insert(0, "stand_in")
from torch.utils.tensorboard.writer import Event, FileWriter

for steps in STEPS:
    writer = FileWriter()
    print("event new")
    for step in steps:
        writer.add_event(Event(summary=1) if step != "own" else Event(session_log=1), 7 if step == "own" else step)
"""
MLFLOW = """
import os, types
class MlflowException(Exception):
    error_code = "RESOURCE_DOES_NOT_EXIST"
class MlflowClient:
    def get_run(self, run_id):
        if run_id != "kept":
            raise MlflowException
        metrics = [types.SimpleNamespace(key="loss", step=47), types.SimpleNamespace(key="total", step=0)]
        return types.SimpleNamespace(
            info=types.SimpleNamespace(lifecycle_stage="active"), data=types.SimpleNamespace(_metric_objs=metrics)
        )
    def log_metric(self, run_id, key, value, timestamp=None, step=None):
        print("logged", run_id, key, step)
    def log_batch(self, run_id, metrics=(), params=()):
        print("logged", run_id, *(f"{each.key} {each.step}" for each in metrics))
def get_tracking_uri():
    return os.environ.get("SERVER", "file:mlruns")
def start_run(run_id=None, nested=False):
    return types.SimpleNamespace(info=types.SimpleNamespace(run_id="0123456789abcdef" * 2, experiment_id="7"))
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> None:
    folder = tmp_path / "stand_in" / "tensorboard"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "writer.py").write_text(WRITER)
    (tmp_path / "mlflow.py").write_text(MLFLOW)


def written(start: Start, steps: str, **variables: str) -> str:
    done = start(sys.executable, "-c", WRITING.replace("STEPS", steps), **variables)
    assert done.returncode == 0, done.stderr
    return " ".join(line[6:] for line in done.stdout.splitlines() if line.startswith("event"))


def test_a_relaunch_purges_from_the_first_step_that_it_writes_again(start: Start, stand_in: None) -> None:
    # Counted from 1: step 40 was made before. Counted from 0: it comes again. Options at step 0 purge nothing.
    steps = "([0, 41, 42], [40, 41], [50], [3, 4], ['own', 41])"
    assert written(start, steps, RUNG_PURGE_STEP="40") == (
        "new value 0 purge 41 value 41 value 42 new purge 40 value 40 value 41 new purge 41 value 50 "
        "new value 3 value 4 new value 7 value 41"
    )
    plain = "new value 0 value 41"
    assert written(start, "([0, 41],)") == plain
    # A script that is only watched is not changed.
    assert written(start, "([0, 41],)", RUNG_PURGE_STEP="40", RUNG_MODE="watch") == plain
    # From scratch everything comes again.
    assert written(start, "([0, 1], [1])", RUNG_PURGE_STEP="0") == "new purge 0 value 0 value 1 new purge 1 value 1"


@pytest.mark.parametrize(
    ("server", "link"),
    [
        ("http://mlflow.lab:5000/", f"http://mlflow.lab:5000/#/experiments/7/runs/{'0123456789abcdef' * 2}"),
        # No server, or one whose address must not be shown: the run as MLflow itself names it.
        ("file:///tmp/mlruns", f"runs:/{'0123456789abcdef' * 2}"),
        ("https://me:password@mlflow.lab", f"runs:/{'0123456789abcdef' * 2}"),
    ],
)
def test_the_link_of_a_run_of_mlflow_is_recorded_when_it_begins(
    start: Start, stand_in: None, server: str, link: str
) -> None:
    script = "import torch, mlflow; print(mlflow.start_run().info.experiment_id)"
    done = start(sys.executable, "-c", script, SERVER=server)
    assert done.returncode == 0 and "7" in done.stdout.splitlines(), done.stderr
    records = [line for line in (done.stdout + done.stderr).splitlines() if "rung| tracker" in line]
    assert [line.partition("link=")[2].strip('"') for line in records] == [link]
    assert "password" not in done.stdout + done.stderr


LOGGING = """
import os, types, torch, mlflow
mlflow.start_run()
client = mlflow.MlflowClient()
for key, step in (("loss", 30), ("loss", 40), ("loss", 47), ("loss", 48), ("total", None), ("new", 41)):
    client.log_metric("kept", key, 1.0, step=step)
client.log_metric("another", "loss", 1.0, None, 41)
client.log_batch("kept", [types.SimpleNamespace(key="loss", step=step) for step in (47, 48)])
print("logged", os.environ.get("MLFLOW_RUN_ID"))
"""


def logged(start: Start, run: str, **variables: str) -> list[str]:
    done = start(sys.executable, "-c", LOGGING, MLFLOW_RUN_ID=run, RUNG_PURGE_STEP="40", **variables)
    assert done.returncode == 0, done.stderr
    return [line[7:] for line in done.stdout.splitlines() if line.startswith("logged")]


def test_a_run_of_mlflow_that_goes_on_gets_no_second_value_for_a_step(start: Start, stand_in: None) -> None:
    rest = ["kept total None", "kept new 41", "another loss 41"]
    assert logged(start, "kept") == ["kept loss 30", "kept loss 48", *rest, "kept loss 48", "kept"]
    every = [f"kept loss {step}" for step in (30, 40, 47, 48)]
    assert logged(start, "kept", RUNG_MODE="watch") == [*every, *rest, "kept loss 47 loss 48", "kept"]
    # A run that is not in this store would end the script.
    assert logged(start, "gone") == [*every, *rest, "kept loss 47 loss 48", "None"]
