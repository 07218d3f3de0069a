"""Tests that a job says at once whether Rung has hands in it, why not, and how many updates it made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

Start = Callable[..., subprocess.CompletedProcess[str]]

TRAINING = """
import torch
print("imported")
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(3):
    weight.pow(2).sum().backward()
    optimizer.step()
raise ValueError("Training loss is nan")
"""
# Changes its weights by itself, in a job where a part of Rung cannot be installed.
BY_HAND = """
import rung_inside.zero_edit as zero_edit
zero_edit._left.insert(0, ("torch", "zero_edit.no_such_part"))
import torch
weight = torch.ones(2, requires_grad=True)
for number in range(300):
    weight.grad = None
    weight.pow(2).sum().backward()
    weight.data -= 0.001 * weight.grad
    if number == 270:
        print("in the middle")
"""


def test_hands_are_reported_before_the_training_and_the_updates_before_the_last_error(start: Start) -> None:
    done = start(sys.executable, "-c", TRAINING)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("rung| hands torch=") and lines[1] == "imported"
    assert [line for line in lines if line.startswith(("rung| hands", "rung| end"))][1:] == ["rung| end updates=3"]
    assert done.stderr.splitlines()[-1] == "ValueError: Training loss is nan"


def test_a_part_that_cannot_be_installed_and_updates_out_of_reach_are_no_hands(start: Start) -> None:
    done = start(sys.executable, "-c", BY_HAND)
    assert done.returncode == 0, done.stderr
    failed, without, middle, end = [line for line in done.stdout.splitlines() if " resumed " not in line]
    assert failed.startswith("rung| hands none why=part_failed part=zero_edit.no_such_part error=")
    assert "ModuleNotFoundError" in failed
    assert without == "rung| hands none why=no_update backwards=256"
    assert (middle, end) == ("in the middle", "rung| end updates=0")


FAILS_AT_ONCE = """
import torch
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
weight.sum().backward()
raise ValueError("Attempting to unscale FP16 gradients.")
"""


def test_a_script_that_fails_in_its_first_step_has_hands(start: Start) -> None:
    lines = start(sys.executable, "-c", FAILS_AT_ONCE).stdout.splitlines()
    found = [line for line in lines if line.startswith(("rung| hands", "rung| end"))]
    assert found[0].startswith("rung| hands torch=") and found[1:] == ["rung| end updates=0"]


def test_a_process_that_only_loads_data_says_nothing(start: Start) -> None:
    done = start(sys.executable, "-c", "import torch", RUNG_HANDS_REPORTED="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
