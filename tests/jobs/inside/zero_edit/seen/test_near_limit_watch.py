"""Tests that a run shows which modules come near FP16's limit, and that watching them changes no bit of it."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rung_inside.places import find
from rung_inside.places.near_limit import PIECE, largest, own_outputs
from torch import nn

from tests import pace
from tests.support.times_module import TIMES

# Slow: CI runs these after the others.
pytestmark = [pytest.mark.long, pytest.mark.sample]

INSIDE = Path(__file__).parents[5] / "jobs" / "inside"
# Tanh of large numbers is almost 1. The loss is scaled by 65536, and its gradient by the size of the outputs.
BEGIN = """
import sys
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
"""
TRAINING = (
    BEGIN
    + TIMES
    + """

class Body(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.large = Times(16000.0)

    def forward(self, x):
        return self.large(x)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.body = torch.nn.Linear(4, 8), Body()
        self.small, self.last = Times(1 / 16000.0), torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.last(self.small(self.body(torch.tanh(self.first(x)))))


def train(model, inner, precision, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=precision == torch.float16)
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=precision):
            loss = (model(torch.randn(4, 4) * 50) - 3.0).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad(), torch.autocast("cpu", dtype=precision):
            inner.body.large.factor = 30000.0
            model(torch.randn(4, 4))
            inner.body.large.factor = 16000.0


model = Model()
called = torch.compile(model, backend="eager") if "compiled" in sys.argv else model
train(called, model, torch.bfloat16 if "bf16" in sys.argv else torch.float16, 70)
torch.save(model, "model.pt")
print("weights", torch.cat([each.detach().flatten() for each in model.parameters()]).tolist())
if "fails" in sys.argv:
    raise SystemError("no more")
"""
)


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., list[str]]:
    (tmp_path / "train.py").write_text(TRAINING)

    def training(*words: str, mode: str = "zero-edit", near: str = "1") -> list[str]:
        env = {**os.environ, "PYTHONPATH": str(INSIDE), "RUNG_MODE": mode, "RUNG_NEAR_LIMIT": near, "RUNG_KNOBS": "{}"}
        command = [sys.executable, "train.py", *words]
        done = pace.run(command, env=env, cwd=tmp_path, usual=60, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode == ("fails" in words), done.stderr
        return done.stdout.decode().splitlines()  # type: ignore[no-any-return]

    return training


def near_in(lines: list[str]) -> list[dict[str, str]]:
    found = [line.removeprefix("rung| near ") for line in lines if line.startswith("rung| near ")]
    return [dict(pair.split("=", 1) for pair in line.split()) for line in found]


def own(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("rung| near")]


@pytest.mark.parametrize("mode", ["zero-edit", "watch"])
def test_modules_near_the_limit_are_reported_and_no_bit_of_the_run_changes(
    train: Callable[..., list[str]], tmp_path: Path, mode: str
) -> None:
    alone = train(mode=mode, near="")
    saved = (tmp_path / "model.pt").read_bytes()
    watched = train("", mode=mode)
    assert own(watched) == alone and not near_in(alone) and saved == (tmp_path / "model.pt").read_bytes()
    records = near_in(watched)
    # At the first update, the second, the fourth and so on, and at the end.
    assert [each["updates"] for each in records] == ["1", "2", "4", "8", "16", "32", "64", "70"]
    assert records[-1]["watched"] == "7"
    # What a module only hands on is not its own, and evaluations are not watched.
    (activation,) = records[-1]["activations"].split(",")
    name, size = activation.split(":")
    assert name == "body.large" and 8188 <= float(size) <= 16000
    gradients = dict(each.split(":") for each in records[-1]["gradients"].split(","))
    assert next(iter(gradients)) == "last" and all(8188 <= float(each) < 65504 for each in gradients.values())


def test_a_run_in_bf16_shows_that_nothing_came_near(train: Callable[..., list[str]]) -> None:
    assert near_in(train("bf16"))[-1] == {"updates": "70", "watched": "7"}


def test_a_run_that_fails_reports_before_its_error(train: Callable[..., list[str]]) -> None:
    assert near_in(train("fails"))[-1]["updates"] == "70"


def test_a_compiled_model_is_not_watched_and_a_note_says_why(train: Callable[..., list[str]]) -> None:
    lines = train("compiled")
    notes = [line for line in lines if line.startswith("rung| note") and "limit" in line]
    assert not near_in(lines) and len(notes) == 1 and "compiled by torch.compile" in notes[0]


@pytest.mark.parametrize(
    ("numbers", "size"),
    [
        ([1.0, -9000.0], 9000.0),
        ([1.0, 65504.0], 1.0),
        ([float("inf"), -float("inf"), float("nan"), -2.0], 2.0),
        ([float("nan")], 0.0),
    ],
)
def test_the_limit_infinity_and_nan_are_not_near_it(numbers: list[float], size: float) -> None:
    assert float(largest(torch.tensor(numbers, dtype=torch.float16))) == size
    assert float(largest(torch.tensor(numbers, dtype=torch.float16)[0])) in (size, 1.0, 0.0)


def test_large_tensors_are_looked_at_whole_whatever_their_layout() -> None:
    tensor = torch.ones(3, PIECE // 2 + 1, dtype=torch.float16)
    tensor[2, -1] = -12344.0
    assert float(largest(tensor)) == float(largest(tensor.t())) == 12344.0


def test_outputs_are_not_kept_alive_and_a_number_that_is_used_again_is_another_tensor() -> None:
    returned: dict[int, Any] = {}
    one = torch.ones(2, dtype=torch.float16)
    assert own_outputs({"one": one}, returned) == [one] and own_outputs([one], returned) == []
    assert own_outputs(torch.ones(2), returned) == []
    kept, number = weakref.ref(one), id(one)
    del one
    assert kept() is None
    returned[id(kept)] = returned.pop(number)
    again = torch.zeros(2, dtype=torch.float16)
    returned[id(again)] = returned[id(kept)]
    assert own_outputs(again, returned) == [again]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_modules_that_hooks_do_not_see_are_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    assert find.why_unseen(model) == ""
    assert "copies the modules" in find.why_unseen(nn.DataParallel(model))
    model[1].compile(backend="eager")
    assert "torch.compile" in find.why_unseen(model)
    model[1] = torch.jit.script(nn.Linear(2, 2))
    assert "TorchScript" in find.why_unseen(model)
