"""Tests the four attempts of the job three-faults without the controller: each knob cures one fault.

A simple rule here chooses the checkpoint of each attempt.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import rung_inside

# tests/flow/test_killed_controller_changes_nothing.py always runs the whole recovery of this job.
pytestmark = pytest.mark.long

INSIDE = Path(rung_inside.__file__).parents[1]
LEAN = Path(__file__).parents[3] / "lean"
JOB = INSIDE.parent / "catalog" / "three-faults"
OWN = {"lr": 2.0, "clip": None, "growth_interval": 2000, "precision": "amp_fp16"}
# Stop the attempt after this many steps in a row without a finite loss.
LOST_STEPS = 10
LAST_STEP, FULL_LR_AT, UNEVEN_FROM = 800, 300, 520
GUESSING, SUCCESS = 1.79, 0.25


@dataclass(frozen=True)
class Attempt:
    """The output of one launch: its step records as numbers, and its text."""

    steps: list[dict[str, float]]
    text: str
    exit_code: int

    @property
    def lost_at(self) -> int | None:
        bad = [record for record in self.steps if not math.isfinite(record["loss"])]
        return int(bad[0]["step"]) if bad else None

    def losses(self, first: int, last: int) -> list[float]:
        return [record["loss"] for record in self.steps if first <= record["step"] < last]

    def norms(self, first: int, last: int) -> list[float]:
        return [record["grad_norm"] for record in self.steps if first <= record["step"] < last]

    @property
    def held_out_loss(self) -> float:
        return float(self.text.rsplit("val_loss=", 1)[1].split()[0])


def launch(folder: Path, checkpoint: str = "", **changes: Any) -> Attempt:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{INSIDE}{os.pathsep}{LEAN}",
        "RUNG_KNOBS": json.dumps({**OWN, **changes}),
        "RUNG_CHECKPOINT": str(folder / checkpoint) if checkpoint else "",
        "RUNG_CHECKPOINT_DIR": str(folder),
    }
    command = [sys.executable, "-W", "ignore", str(JOB / "train.py")]
    lines: list[str] = []
    steps: list[dict[str, float]] = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.startswith("rung| step "):
                steps.append({name: float(value) for name, value in (pair.split("=") for pair in line.split()[2:])})
            if len(steps) >= LOST_STEPS and not any(math.isfinite(each["loss"]) for each in steps[-LOST_STEPS:]):
                process.kill()
    return Attempt(steps, "".join(lines), process.returncode)


def newest_before(folder: Path, step: int) -> str:
    steps = [int(path.stem.split("_")[1]) for path in folder.glob("step_*.pt")]
    return f"step_{max(each for each in steps if each < step)}.pt"


def drift_began(attempt: Attempt) -> int:
    """Return the first step from which the loss, smoothed over five steps, is above twice its earlier level."""
    level = 2 * median(attempt.losses(150, 250))
    last = attempt.lost_at or LAST_STEP
    return max(step for step in range(200, last) if median(attempt.losses(step - 4, step + 1)) < level)


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory, once: Callable[..., Any]) -> list[Attempt]:
    attempts: list[Attempt] = once("three-faults", lambda: driven(tmp_path_factory.mktemp("checkpoints")))
    return attempts


def driven(folder: Path) -> list[Attempt]:
    """Run the job four times, each time with one more knob changed, from the newest checkpoint before the fault."""
    first = launch(folder)
    second = launch(folder, newest_before(folder, 121), clip=1.0)
    third = launch(folder, newest_before(folder, drift_began(second)), clip=1.0, lr=0.2)
    fourth = launch(folder, newest_before(folder, UNEVEN_FROM), clip=1.0, lr=0.2, precision="native_fp16")
    return [first, second, third, fourth]


def test_the_first_attempt_ends_with_a_spike_and_nan(attempts: list[Attempt]) -> None:
    first = attempts[0]
    assert first.lost_at is not None and 121 < first.lost_at < 140
    before, during = first.norms(60, 121), first.norms(121, first.lost_at)
    assert max(during) > 20 * max(before)
    assert any(after > 10 * earlier for earlier, after in pairwise([before[-1], *during]))


def test_the_loss_falls_before_the_first_fault(attempts: list[Attempt]) -> None:
    assert median(attempts[0].losses(100, 121)) < GUESSING / 2


def test_clipping_cures_the_spike_and_the_loss_then_drifts_up_to_nan(attempts: list[Attempt]) -> None:
    second = attempts[1]
    assert "rung| knobs lr=2.0 clip=1.0 growth_interval=2000 precision=amp_fp16" in second.text
    assert "rung| resumed step=100 file=step_100.pt" in second.text
    assert second.lost_at is not None and FULL_LR_AT - 40 < second.lost_at < UNEVEN_FROM
    began = drift_began(second)
    # A drift: many steps from the first rise to the end, without a jump of the gradients.
    assert second.lost_at - began > 10
    assert all(after < 10 * before for before, after in pairwise(second.norms(began, second.lost_at)))
    assert median(second.losses(second.lost_at - 10, second.lost_at)) > 10 * median(second.losses(200, 250))


def test_a_lower_lr_cures_the_drift_and_the_next_fault_is_an_fp16_overflow(attempts: list[Attempt]) -> None:
    third = attempts[2]
    assert "rung| knobs lr=0.2 clip=1.0 growth_interval=2000 precision=amp_fp16" in third.text
    assert third.lost_at is None and third.exit_code == 1
    assert third.steps[-1]["step"] == UNEVEN_FROM
    assert "value cannot be converted to type" in third.text and "without overflow" in third.text
    assert median(third.losses(450, UNEVEN_FROM)) < 0.9 * median(third.losses(350, 400))


def test_native_fp16_cures_the_overflow_and_the_run_succeeds(attempts: list[Attempt]) -> None:
    fourth = attempts[3]
    assert "rung| knobs lr=0.2 clip=1.0 precision=native_fp16" in fourth.text
    assert "rung| resumed step=500 file=step_500.pt" in fourth.text
    assert fourth.lost_at is None and fourth.exit_code == 0
    assert fourth.steps[-1]["step"] == LAST_STEP
    assert fourth.held_out_loss < SUCCESS
    assert median(fourth.losses(700, 801)) < median(fourth.losses(520, 620))


def test_the_threshold_is_the_one_in_the_job_file() -> None:
    assert f"success: {{metric: val_loss, below: {SUCCESS}}}" in (JOB / "job.yaml").read_text(encoding="utf-8")


def test_fp32_alone_does_not_cure_the_spike(tmp_path: Path) -> None:
    attempt = launch(tmp_path, precision="fp32")
    assert attempt.lost_at is not None and 121 < attempt.lost_at < 140


def test_a_resumed_run_reads_the_same_batches_as_the_run_without_a_break(attempts: list[Attempt]) -> None:
    first, second = attempts[0], attempts[1]
    # Clipping changes later losses, but the first one after the resume has the same weights and the same batch.
    assert second.steps[0]["step"] == 101
    assert second.losses(101, 102) == first.losses(101, 102)
