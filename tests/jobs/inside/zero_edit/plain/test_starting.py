"""Tests that zero-edit starts with every way of starting a script, and does nothing in other programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

INSIDE = Path(__file__).parents[5] / "jobs" / "inside"
Start = Callable[..., subprocess.CompletedProcess[str]]

TRAINING = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, in DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=4, num_workers=1):
    optimizer.zero_grad()
    model(inputs).pow(2).mean().backward()
    optimizer.step()
print("trained by", __name__)
"""

FAILING = """
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
with torch.autocast("cpu", dtype=torch.float16):
    model(torch.ones(2, 4)).masked_fill(torch.ones(2, 1) > 0, -1e9)
"""

RANKS = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 4) + rank).pow(2).mean().backward()
    optimizer.step()
weights = torch.cat([each.detach().float().flatten() for each in model.parameters()])
with open(f"weights{rank}", "w") as file:
    file.write(f"{model.module[0].weight.dtype} {weights.tolist()}")
# A rank that exits while others still use the group makes gloo's threads end them with SIGABRT.
dist.barrier()
del model, optimizer
dist.destroy_process_group()
"""


def test_a_module_started_by_a_shell_script_is_reported_even_if_its_output_goes_to_a_file(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(TRAINING + "raise ValueError('Training loss is nan')\n")
    (tmp_path / "run.sh").write_text(f"'{sys.executable}' -m package > out.txt 2>&1\n")
    (tmp_path / "log").touch()
    done = start("sh", "run.sh", knobs={"lr": 0.01}, RUNG_LOG=str(tmp_path / "log"))
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "out.txt").read_text().startswith("trained by __main__\nTraceback ")
    log = (tmp_path / "log").read_text().splitlines()
    assert [line for line in log if " knobs " in line] == ["rung| knobs lr=0.01 clip=off precision=fp32"]
    assert log[-1] == "ValueError: Training loss is nan"
    assert log.count(log[-1]) == 1
    assert not any(" note " in line for line in log)


def test_a_script_that_fails_before_its_first_update_reports_its_precision_once(start: Start) -> None:
    done = start(sys.executable, "-c", FAILING, knobs={"lr": 0.01})
    assert "without overflow" in done.stderr
    knobs = [line for line in done.stdout.splitlines() if line.startswith("rung| knobs ")]
    assert knobs == ["rung| knobs growth_interval=2000 precision=amp_fp16"]


def test_every_rank_applies_the_knobs_and_one_rank_reports(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = start(*launcher, "train.py", knobs={"lr": 0.01, "precision": "native_fp16", "clip": 1.0})
    assert done.returncode == 0, done.stderr
    knobs = [line for line in done.stdout.splitlines() if line.startswith("rung| knobs ")]
    assert knobs == ["rung| knobs lr=0.01 clip=1.0 precision=native_fp16"]
    assert "rung| note" not in done.stdout
    first, second = ((tmp_path / f"weights{rank}").read_text() for rank in range(2))
    assert first.startswith("torch.float16")
    assert first == second


def test_without_torch_nothing_happens_and_a_hidden_sitecustomize_still_runs(start: Start, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("print('hidden ran as', __name__)\n")
    (hidden / "torch.py").write_text("raise ImportError('no torch here')\n")
    code = (
        "import sys, sitecustomize; print(sitecustomize.__file__)\ntry: import torch\nexcept ImportError as e: print(e)"
    )
    path = os.pathsep.join([str(INSIDE), str(hidden)])
    for zero in (True, False):
        done = start(sys.executable, "-c", code, zero=zero, PYTHONPATH=path)
        assert done.stdout.splitlines() == [
            "hidden ran as sitecustomize",
            str(hidden / "sitecustomize.py"),
            "no torch here",
        ]
        assert (done.returncode, done.stderr) == (0, "")
