"""Gives each test a clean environment and a small model, optimizer and schedule."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rung_inside.contract import records

ROOT = Path(__file__).parents[3]
INSIDE = ROOT / "jobs" / "inside"

with warnings.catch_warnings():
    # torch warns at its first import that numpy is missing; nothing here needs it.
    warnings.simplefilter("ignore")
    import torch

VARIABLES = ("KNOBS", "CHECKPOINT", "CHECKPOINT_DIR", "CHECKPOINT_PATTERN", "CHECKPOINT_EVERY", "JOB", "ATTEMPT")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start each test like a new process: no variables set, nothing reported, one seed."""
    for name in VARIABLES:
        monkeypatch.delenv(f"RUNG_{name}", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    # Set, not deleted, so that what the test itself sets is removed after it.
    monkeypatch.setenv(records.HANDS_REPORTED, "")
    records._last_reported.clear()
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def records_of(capsys: pytest.CaptureFixture[str]) -> Callable[[str], list[dict[str, str]]]:
    """Return the records of one kind written since the last call, each as a dict of texts."""
    kept: list[str] = []

    def read(kind: str) -> list[dict[str, str]]:
        kept.extend(capsys.readouterr().out.splitlines())
        start = f"rung| {kind} "
        return [
            dict(pair.split("=", 1) for pair in line[len(start) :].split()) for line in kept if line.startswith(start)
        ]

    return read


class Trained:
    """A small network with its optimizer and schedule, and the same data for a step every time."""

    def __init__(self, lr: float = 1e-2, optimizer: Any = torch.optim.AdamW, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        self.optimizer = optimizer(self.model.parameters(), lr=lr, **options)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 10))

    @staticmethod
    def batch(seed: int, count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.randn(count, 8, generator=generator)
        return inputs, torch.sin(inputs.sum(dim=1, keepdim=True) / 2)

    def loss(self, run: Any, seed: int, count: int = 64) -> torch.Tensor:
        inputs, targets = self.batch(seed, count)
        with run.autocast():
            predicted = self.model(inputs)
        return torch.nn.functional.mse_loss(predicted.float(), targets)

    def steps(self, run: Any, first: int, last: int) -> None:
        for step in range(first, last):
            run.step(self.loss(run, 100 + step), step)

    def held_out(self, run: Any) -> float:
        with torch.no_grad():
            return float(self.loss(run, 1, 2000))


@pytest.fixture
def trained() -> type[Trained]:
    return Trained


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Return a function that asks for knobs and a checkpoint through the environment, as the controller does."""

    def asking(checkpoint: str = "", **knobs: Any) -> None:
        names = ("lr", "clip", "growth_interval", "precision", "batch", "accumulation")
        monkeypatch.setenv("RUNG_KNOBS", json.dumps({**dict.fromkeys(names), **knobs}))
        monkeypatch.setenv("RUNG_CHECKPOINT", checkpoint)
        monkeypatch.setenv("RUNG_CHECKPOINT_DIR", str(tmp_path))
        records._last_reported.clear()

    return asking
