"""Tests that a file with a checkpoint's final name is always complete, even if saving is interrupted."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import rung_inside
import torch
from rung_inside.attach import checkpoint

from tests import pace

INSIDE = Path(rung_inside.__file__).parents[1]
KILLED_WHILE_SAVING = """
import os, signal, sys
import torch, rung_inside

class Deadly:
    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)

rung_inside.save(sys.argv[1], {"step": 2, "model": torch.ones(1000), "last": Deadly()})
"""


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_save_by_step_uses_the_pattern_and_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records_of: Callable[[str], list[dict[str, str]]]
) -> None:
    monkeypatch.setenv("RUNG_CHECKPOINT_DIR", str(tmp_path / "new" / "folder"))
    path = rung_inside.save(7, {"step": 7})
    assert path.endswith("new/folder/step_7.pt") and names_in(tmp_path / "new" / "folder") == ["step_7.pt"]
    assert records_of("saved") == [{"step": "7", "file": "step_7.pt"}]


def test_a_save_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "step_1.pt"
    rung_inside.save(path, {"step": 1})
    with pytest.raises((AttributeError, TypeError, RuntimeError, OSError)):
        rung_inside.save(path, {"step": 2, "bad": lambda: None})
    assert torch.load(path, weights_only=True) == {"step": 1}
    assert names_in(tmp_path) == ["step_1.pt"]


def test_a_process_killed_while_saving_leaves_the_old_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "step_1.pt"
    rung_inside.save(path, {"step": 1})
    command = [sys.executable, "-W", "ignore", "-c", KILLED_WHILE_SAVING, str(path)]
    ended = pace.run(command, env={**os.environ, "PYTHONPATH": str(INSIDE)}, check=False, usual=60)
    assert ended.returncode == -signal.SIGKILL
    assert torch.load(path, weights_only=True) == {"step": 1}
    # The name of the unfinished file does not match the checkpoint pattern.
    assert list(tmp_path.glob("step_*.pt")) == [path]


def test_only_the_first_rank_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    rung_inside.save(tmp_path / "step_1.pt", {"step": 1})
    assert names_in(tmp_path) == []


def test_numpy_scalars_are_saved_as_plain_numbers() -> None:
    class Scalar:
        shape = ()

        def item(self) -> float:
            return 2.5

    Scalar.__module__ = "numpy"
    assert checkpoint.without_numpy({"best": Scalar(), "all": [Scalar(), 1]}) == {"best": 2.5, "all": [2.5, 1]}
