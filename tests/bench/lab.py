"""Trains a plan with several seeds and records every step, with real torch, optimizers and scaler."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tests.bench.tasks import TASKS, Setting, Task
from tests.bench.traces import Trace


@dataclass(frozen=True)
class Plan:
    """One training as it is set up. `fault` names what will ruin it; an empty one is a healthy training."""

    name: str
    task: str
    fault: str = ""
    steps: int = 1000
    seeds: int = 8
    setting: Setting = field(default_factory=Setting)
    optimizer: str = "adamw"
    options: dict[str, Any] = field(default_factory=dict)
    lr: float = 1e-3
    schedule: str = "constant"
    clip: float | None = None
    accumulation: int = 1
    amp: bool = False


def _cosine(done: float) -> float:
    return 0.5 + 0.5 * math.cos(math.pi * done)


# What the learning rate is multiplied by, from the share of the run that is done.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "warm_up": lambda done: min(1.0, 10 * done) * _cosine(done),
    "slow_warm_up": lambda done: min(1.0, 2 * done),
    "restarts": lambda done: 0.01 + 0.99 * _cosine(4 * done % 1.0),
    "decay": lambda done: 0.2 ** int(3 * done),
    "one_cycle": lambda done: 1.0 - 0.9 * abs(2 * done - 1),
    "linear": lambda done: 1.0 - 0.95 * done,
}
# What goes wrong: the same from the number of steps since the healthy part was over.
MISTAKES: dict[str, Callable[[float], float]] = {
    "ramp": lambda steps: 1.01**steps,
    "slow_ramp": lambda steps: 1.004**steps,
    "jump": lambda steps: 30.0,
    "small_jump": lambda steps: 8.0,
}
HEALTHY_PART = 0.3


def factor(schedule: str, step: int, steps: int) -> float:
    """Return what the learning rate is multiplied by at a step."""
    if schedule in SCHEDULES:
        return SCHEDULES[schedule]((step + 1) / steps if "warm_up" in schedule else step / steps)
    since = step - HEALTHY_PART * steps
    return MISTAKES[schedule](since) if since >= 0 else 1.0


def train(plan: Plan, seed: int) -> list[Trace]:
    """Train all seeds of a plan, beginning with this one, and return what each of them printed."""
    if plan.amp and plan.seeds > 1:
        # A scaler has one scale for all it holds, so here every seed needs a training of its own.
        return [trace for n in range(plan.seeds) for trace in train(replace(plan, seeds=1), seed + n)]
    traces = [Trace(plan.name, plan.task, plan.fault, seed + n) for n in range(plan.seeds)]
    for row in _Training(plan, seed).rows():
        alive = False
        for n, trace in enumerate(traces):
            alive |= _note(trace, row, n)
        if not alive:
            break
    return traces


def _note(trace: Trace, row: dict[str, Any], n: int) -> bool:
    """Write one row of one seed; return whether it is worth going on."""
    if trace.broke is not None:
        return False
    trace.loss.append(row["loss"][n])
    trace.grad_norm.append(row["grad_norm"][n])
    trace.lr.append(row["lr"])
    if row["scale"] is not None:
        trace.scale.append(row["scale"])
        trace.skipped.append(row["skipped"])
    if not math.isfinite(row["loss"][n]):
        trace.broke = len(trace.loss)
    return trace.broke is None


class _Training:
    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        generator = torch.Generator().manual_seed(7919 * seed + sum(map(ord, plan.name)))
        self.task: Task = TASKS[plan.task](plan.seeds, generator, plan.setting)
        self.held = list(self.task.parameters.values())
        maker = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[plan.optimizer]
        self.optimizer = maker(self.held, lr=plan.lr, **plan.options)
        self.scaler = torch.amp.GradScaler("cpu", enabled=plan.amp)

    def rows(self) -> Iterator[dict[str, Any]]:
        for step in range(self.plan.steps):
            lr = self.plan.lr * factor(self.plan.schedule, step, self.plan.steps)
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            losses = self._backward(step)
            norms = self._clip()
            scale = self.scaler.get_scale() if self.plan.amp else None
            self.scaler.step(self.optimizer)
            self.scaler.update()
            skipped = int(self.plan.amp and not math.isfinite(norms[0]))
            yield {"loss": losses, "grad_norm": norms, "lr": lr, "scale": scale, "skipped": skipped}

    def _backward(self, step: int) -> list[float]:
        self.optimizer.zero_grad()
        total = torch.zeros(self.plan.seeds)
        for part in range(self.plan.accumulation):
            with torch.autocast("cpu", dtype=torch.float16, enabled=self.plan.amp):
                losses = self.task.losses(step * self.plan.accumulation + part)
            self.scaler.scale(losses.float().sum() / self.plan.accumulation).backward()
            total += losses.detach().float() / self.plan.accumulation
        return total.tolist()

    def _clip(self) -> list[float]:
        if self.plan.amp:
            self.scaler.unscale_(self.optimizer)
        squares = sum(each.grad.flatten(1).pow(2).sum(1) for each in self.held)
        norms = squares.sqrt()
        if self.plan.clip is not None:
            shrink = (self.plan.clip / (norms + 1e-6)).clamp_max(1.0)
            for each in self.held:
                each.grad.mul_(shrink.view(-1, *[1] * (each.dim() - 1)))
        return norms.tolist()
