"""Tests that watching a script reads what zero-edit reads, and changes nothing, whatever Rung asks for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., subprocess.CompletedProcess[str]]

TRAINING = """
import os, torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.25)
scaler = torch.amp.GradScaler("cpu", growth_interval=7)
if os.path.exists("half.pt"):
    scaler.load_state_dict(torch.load("half.pt"))
for step in range(5):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(torch.randn(4, 4)).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print("weights", torch.cat([each.detach().flatten() for each in model.parameters()]).tolist())
print("scale", scaler.get_scale())
"""
# All of it would change the result, and is asked of the script by its flags.
ASKED = {"lr": 0.01, "clip": 0.1, "growth_interval": 2, "precision": "fp32", "constants": "clamp", "skip": "2-3"}


@pytest.fixture
def train(start: Start, tmp_path: Path) -> Callable[..., list[str]]:
    (tmp_path / "train.py").write_text(TRAINING)

    def training(mode: str) -> list[str]:
        done = start(sys.executable, "train.py", zero=False, RUNG_MODE=mode, RUNG_KNOBS=json.dumps(ASKED))
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return training


def own(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("rung|")]


def test_a_watched_script_computes_the_same_and_its_updates_are_recorded(train: Callable[..., list[str]]) -> None:
    alone, watched = train("flags"), train("watch")
    assert own(alone) == alone == own(watched)
    steps = [line for line in watched if line.startswith("rung| step ")]
    assert [re.search(r"\bstep=(\d+)", line)[1] for line in steps] == ["1", "2", "3", "4", "5"]  # type: ignore[index]
    assert all(re.search(r"\bloss=\d", line) for line in steps)
    (knobs,) = (line for line in watched if line.startswith("rung| knobs "))
    assert "lr=0.25" in knobs and "growth_interval=7" in knobs and "precision=amp_fp16" in knobs
    assert "rung| end updates=5" in watched


def test_a_failing_step_of_a_watched_script_is_not_replayed(start: Start, tmp_path: Path) -> None:
    """Its own FP32 is another program than this one with wider numbers."""
    (tmp_path / "train.py").write_text(TRAINING.replace(".pow(2).mean()", ".pow(2).mean() / (step != 3)"))
    for mode, replays in (("zero-edit", True), ("watch", False)):
        done = start(sys.executable, "train.py", zero=False, RUNG_MODE=mode, RUNG_KNOBS="{}")
        assert "loss=inf" in done.stdout and ("rung| replay " in done.stdout) is replays, done.stdout


SAVING = """
import os, sys, torch

folder, updates = os.environ["RUNG_CHECKPOINT_DIR"], int(sys.argv[1])
if os.environ["RUNG_CHECKPOINT"]:
    torch.load(os.environ["RUNG_CHECKPOINT"])
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(updates):
    weight.sum().backward()
    optimizer.step()
torch.save({"step": 9, "weight": weight}, os.path.join(folder, "step_9.pt"))
"""


@pytest.mark.parametrize(
    ("updates", "resumed", "saved"),
    [(0, [], []), (2, ["rung| resumed step=5 file=step_5.pt"], ["rung| saved step=7 file=step_9.pt"])],
)
def test_files_of_a_script_without_updates_have_the_steps_that_their_names_say(
    start: Start, tmp_path: Path, updates: int, resumed: list[str], saved: list[str]
) -> None:
    """Rung counts updates; a script that makes none, or hides them, counts by itself."""
    import torch

    torch.save({"step": 5}, tmp_path / "step_5.pt")
    (tmp_path / "train.py").write_text(SAVING)
    variables = {"RUNG_CHECKPOINT_DIR": str(tmp_path), "RUNG_CHECKPOINT": str(tmp_path / "step_5.pt")}
    done = start(sys.executable, "train.py", str(updates), zero=False, RUNG_MODE="watch", RUNG_KNOBS="{}", **variables)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("rung| resumed")] == resumed
    assert [line for line in lines if line.startswith("rung| saved")] == saved


def test_a_watched_script_says_nothing_of_hands(train: Callable[..., list[str]]) -> None:
    assert not [line for line in train("watch") if line.startswith("rung| hands")]


def test_a_watched_script_loads_a_collapsed_scale_as_it_is(train: Callable[..., list[str]], tmp_path: Path) -> None:
    import torch

    state = {"scale": 0.25, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 7, "_growth_tracker": 0}
    torch.save(state, tmp_path / "half.pt")
    assert "scale 0.25" in train("watch")
    assert "scale 0.25" not in train("zero-edit")


ATTACHED = """
import torch, rung_inside

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
run = rung_inside.attach(model, optimizer, device="cpu", defaults={"precision": "fp32"})
for step in range(3):
    optimizer.zero_grad()
    with run.autocast():
        loss = model(torch.ones(2, 4)).pow(2).mean()
    run.step(loss, step)
"""


def test_a_watched_script_that_reports_by_itself_reports_once(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ATTACHED)
    done = start(sys.executable, "train.py", zero=False, RUNG_MODE="watch", RUNG_KNOBS='{"lr": 0.125}')
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum(line.startswith("rung| step ") for line in lines) == 3
    (knobs,) = (line for line in lines if line.startswith("rung| knobs "))
    assert "lr=0.125" in knobs, "what the script itself asks Rung for is set"
    assert sum(line.startswith("rung| hands torch=") for line in lines) == 1
    assert lines.count("rung| end updates=3") == 1
