"""Tests the hooks for trackers, with modules that stand in for TensorBoard's writer and for MLflow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., subprocess.CompletedProcess[str]]

WRITER = """
class SummaryWriter:
    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10):
        print("writer", log_dir, purge_step, max_queue)
"""
# torch has the real one only where TensorBoard is installed; this folder comes before it.
WRITING = """
import torch.utils
torch.utils.__path__.insert(0, "stand_in")
from torch.utils.tensorboard.writer import SummaryWriter

SummaryWriter("a")
SummaryWriter(log_dir="b", max_queue=3)
SummaryWriter("c", purge_step=7)
SummaryWriter("d", "", 8)
SummaryWriter("e", purge_step=None)
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


def written(start: Start, **variables: str) -> list[str]:
    done = start(sys.executable, "-c", WRITING, **variables)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("writer")]


def test_a_relaunch_purges_from_the_step_it_resumes_at_unless_the_script_says_another(
    start: Start, stand_in: None
) -> None:
    given = ["writer c 7 10", "writer d 8 10"]
    assert written(start, RUNG_PURGE_STEP="40") == ["writer a 40 10", "writer b 40 3", *given, "writer e 40 10"]
    plain = ["writer a None 10", "writer b None 3", *given, "writer e None 10"]
    assert written(start) == plain
    # A script that is only watched is not changed.
    assert written(start, RUNG_PURGE_STEP="40", RUNG_MODE="watch") == plain


@pytest.mark.parametrize(
    ("server", "link"),
    [
        ("http://mlflow.lab:5000/", f"http://mlflow.lab:5000/#/experiments/7/runs/{'0123456789abcdef' * 2}"),
        ("file:///tmp/mlruns", None),
        ("https://me:password@mlflow.lab", None),
    ],
)
def test_the_link_of_a_run_of_mlflow_is_recorded_when_it_begins(
    start: Start, stand_in: None, server: str, link: str | None
) -> None:
    script = "import torch, mlflow; print(mlflow.start_run().info.experiment_id)"
    done = start(sys.executable, "-c", script, SERVER=server)
    assert done.returncode == 0 and "7" in done.stdout.splitlines(), done.stderr
    records = [line for line in (done.stdout + done.stderr).splitlines() if "rung| tracker" in line]
    assert [line.partition("link=")[2].strip('"') for line in records] == ([link] if link else [])
    assert "password" not in done.stdout + done.stderr
