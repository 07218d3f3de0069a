"""Tests that zero-edit is whole in whatever order a script imports torch and its frameworks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., subprocess.CompletedProcess[str]]

TRAINING = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).pow(2).mean().backward()
optimizer.step()
"""
# A framework whose package needs no torch, and whose trainer imports it before its class exists.
TRAINER = """
import torch
class Trainer:
    def train(self, resume_from_checkpoint=None):
        return resume_from_checkpoint
"""


@pytest.mark.parametrize(
    "first",
    [
        "import transformers",
        "from torch import nn",
        "import torch.nn.functional as functional",
    ],
)
def test_the_knobs_are_reported_whatever_the_script_imports_first(start: Start, first: str) -> None:
    done = start(sys.executable, "-c", first + TRAINING, knobs={"lr": 0.01})
    assert done.returncode == 0, done.stderr
    assert "rung| note" not in done.stdout
    assert "rung| knobs lr=0.01 clip=off precision=fp32" in done.stdout.splitlines()


def test_a_framework_that_imports_torch_half_way_is_patched_after_its_import(start: Start, tmp_path: Path) -> None:
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").write_text("import sys\nassert 'torch' not in sys.modules\n")
    (package / "trainer.py").write_text(TRAINER)
    (tmp_path / "train.py").write_text(
        "import transformers, sys\n"
        # Rung itself must not be the one that imports torch.
        "print('torch' in sys.modules)\n"
        "from transformers.trainer import Trainer\n" + TRAINING + "print(Trainer().train())\n"
    )
    (tmp_path / "step_5.pt").mkdir()
    (tmp_path / "step_5.pt" / "trainer_state.json").touch()
    done = start(sys.executable, "train.py", RUNG_CHECKPOINT=str(tmp_path / "step_5.pt"))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "False"
    assert str(tmp_path / "step_5.pt") in lines, "the checkpoint that Rung chose"
    assert "rung| knobs lr=0.1 clip=off precision=fp32" in lines
