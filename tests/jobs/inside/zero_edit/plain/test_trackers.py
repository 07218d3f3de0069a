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
def get_tracking_uri():
    return os.environ["SERVER"]
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
