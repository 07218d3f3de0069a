"""Trains: one plan, several seeds, and what a log would say of every step. Real torch, real optimizers, real scaler."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tests.bench.tasks import TASKS, Setting, Task

# A run that has been ruined for this many steps without a value that is not finite is not followed further.
AFTER_RUIN = 150


@dataclass(frozen=True)
class Plan:
    """One training as it is set up. `fault` names what will ruin it; an empty one is a healthy training."""

    name: str
    task: str
    fault: str = ""
    steps: int = 1000
    seeds: int = 8
    setting: Setting = Setting()
    optimizer: str = "adamw"
    options: dict[str, Any] = field(default_factory=dict)
    lr: float = 1e-3
    schedule: str = "constant"
    clip: float | None = None
    accumulation: int = 1
    amp: bool = False


@dataclass
class Trace:
    """What one training printed: a row a step, up to its first loss that is not finite."""

    plan: str
    task: str
    fault: str
    seed: int
    loss: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    scale: list[float] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    update_rms: list[float] = field(default_factory=list)
    # The step of the first loss that is not finite; None where there was none.
    broke: int | None = None


def factor(schedule: str, step: int, steps: int) -> float:
    """Return what the learning rate is multiplied by at a step."""
    done = step / steps
    if schedule == "constant":
        return 1.0
    if schedule == "warm_up":
        return min(1.0, (step + 1) / (0.1 * steps)) * (0.5 + 0.5 * math.cos(math.pi * done))
    if schedule == "slow_warm_up":
        return min(1.0, (step + 1) / (0.5 * steps))
    if schedule == "restarts":
        return 0.01 + 0.99 * (0.5 + 0.5 * math.cos(math.pi * (4 * done % 1.0)))
    if schedule == "decay":
        return 0.2 ** int(3 * done)
    if schedule == "one_cycle":
        return 0.1 + 0.9 * (1 - abs(2 * done - 1))
    if schedule == "linear":
        return 1.0 - 0.95 * done
    # What goes wrong: the rate is raised after a healthy part, by little and little or at once.
    if schedule == "ramp":
        return 1.0 if done < 0.3 else 1.01 ** (step - 0.3 * steps)
    if schedule == "slow_ramp":
        return 1.0 if done < 0.3 else 1.004 ** (step - 0.3 * steps)
    if schedule == "jump":
        return 1.0 if done < 0.3 else 30.0
    if schedule == "small_jump":
        return 1.0 if done < 0.3 else 8.0
    raise ValueError(schedule)


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
    if row["update_rms"]:
        trace.update_rms.append(row["update_rms"][n])
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
            rms = self._update_rms() if step % 10 == 0 else None
            scale = self.scaler.get_scale() if self.plan.amp else None
            self.scaler.step(self.optimizer)
            self.scaler.update()
            skipped = int(self.plan.amp and not math.isfinite(norms[0]))
            yield {"loss": losses, "grad_norm": norms, "lr": lr, "scale": scale, "skipped": skipped, "update_rms": rms}

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

    def _update_rms(self) -> list[float] | None:
        """Return, for each seed, the root of the mean of g^2 / v: how far gradients are from what Adam expects."""
        ratios = [
            (each.grad.pow(2) / state["exp_avg_sq"].clamp_min(1e-16)).flatten(1)
            for each in self.held
            if "exp_avg_sq" in (state := self.optimizer.state.get(each, {}))
        ]
        return torch.cat(ratios, 1).mean(1).sqrt().tolist() if ratios else None
