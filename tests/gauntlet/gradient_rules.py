"""Runs a script with a rule on its gradients, lr or optimizer state: `python gradient_rules.py RULE SCRIPT ARGUMENTS`.

The first four rules are what Rung's rungs do, with one more value for the clip. The numbers of AdaGC (arXiv 2502.11034)
and of ZClip (arXiv 2504.02507) are those of their papers. The script does not know of any of this.
"""

from __future__ import annotations

import math
import runpy
import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class Rule:
    """Changes something before an update, and may change it back after the update."""

    def before(self, optimizer: Optimizer) -> None:
        raise NotImplementedError

    def after(self, optimizer: Optimizer) -> None:
        pass


class Clip(Rule):
    """Clips the norm over all tensors at a fixed value."""

    def __init__(self, most: float) -> None:
        self.most = most

    def before(self, optimizer: Optimizer) -> None:
        torch.nn.utils.clip_grad_norm_(parameters(optimizer), self.most)


class ClipAtMedian(Rule):
    """Clips the norm over all tensors at the median of the last 100, once there are ten."""

    def __init__(self) -> None:
        self.norms: deque[float] = deque(maxlen=100)

    def before(self, optimizer: Optimizer) -> None:
        norm = norm_of(optimizer)
        if math.isfinite(norm):
            self.norms.append(norm)
        if len(self.norms) >= 10:
            shrink(gradients(optimizer), statistics.median(self.norms) / max(norm, 1e-12))


class LowerLr(Rule):
    """Multiplies the lr. A fresh start also drops the optimizer's state and raises the lr over 100 updates."""

    def __init__(self, share: float = 1.0, *, fresh: bool = False) -> None:
        self.share, self.fresh, self.updates = share, fresh, 0
        self.own: list[float] = []

    def before(self, optimizer: Optimizer) -> None:
        if self.fresh and self.updates == 0:
            optimizer.state.clear()
        self.updates += 1
        share = self.share * (min(1.0, self.updates / 100) if self.fresh else 1.0)
        self.own = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] *= share

    def after(self, optimizer: Optimizer) -> None:
        for group, lr in zip(optimizer.param_groups, self.own, strict=True):
            group["lr"] = lr


class PerTensor(Rule):
    """Clips each tensor at 1.05 times the average of its own clipped norms (AdaGC).

    In the first 100 updates the norm over all tensors is clipped at 1, and each tensor's average is its least norm.
    """

    def __init__(self) -> None:
        self.updates, self.levels = 0, dict[int, float]()

    def before(self, optimizer: Optimizer) -> None:
        self.updates += 1
        warm_up = self.updates <= 100
        if warm_up:
            shrink(gradients(optimizer), 1.0 / max(norm_of(optimizer), 1e-12))
        for gradient, owner in owned(optimizer):
            norm = float(torch.linalg.vector_norm(gradient))
            self.levels[owner] = self._level(self.levels.get(owner, norm), norm, gradient, warm_up)

    @staticmethod
    def _level(level: float, norm: float, gradient: Tensor, warm_up: bool) -> float:
        if not math.isfinite(norm):
            return level
        if warm_up:
            return min(level, norm) if norm > 0 else level
        shrink([gradient], 1.05 * level / max(norm, 1e-12))
        return 0.98 * level + 0.02 * min(norm, 1.05 * level)


class Averages:
    """Follows the mean and the variance of norms, the last ones most. The first 25 are only collected."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.mean = self.variance = 0.0

    def sigmas(self, norm: float) -> float:
        """Return how many standard deviations a norm is above the mean; 0 while the first ones are collected."""
        if len(self.first) < 25:
            return 0.0
        return (norm - self.mean) / max(math.sqrt(self.variance), 1e-12)

    def add(self, norm: float) -> None:
        if not math.isfinite(norm):
            return
        if len(self.first) < 25:
            self.first.append(norm)
            self.mean, self.variance = statistics.fmean(self.first), statistics.pvariance(self.first)
            return
        self.mean = 0.97 * self.mean + 0.03 * norm
        self.variance = 0.97 * self.variance + 0.03 * (norm - self.mean) ** 2


class ZClip(Rule):
    """Clips a norm that is more than 2.5 sigma above the average, the more the further it is above."""

    def __init__(self) -> None:
        self.averages = Averages()

    def before(self, optimizer: Optimizer) -> None:
        norm = norm_of(optimizer)
        sigmas = self.averages.sigmas(norm)
        if sigmas > 2.5:
            limit = self.averages.mean + 2.5 * 2.5 / sigmas * math.sqrt(self.averages.variance)
            shrink(gradients(optimizer), limit / norm)
            norm = limit
        self.averages.add(norm)


class LeaveOut(Rule):
    """Leaves out an update whose norm is more than six sigma above the average, or not finite."""

    def __init__(self) -> None:
        self.averages = Averages()

    def before(self, optimizer: Optimizer) -> None:
        norm = norm_of(optimizer)
        if math.isfinite(norm) and self.averages.sigmas(norm) <= 6:
            self.averages.add(norm)
            return
        for parameter in parameters(optimizer):
            parameter.grad = None  # torch's optimizers pass over it, and over its state


RULES: dict[str, Callable[[], Rule]] = {
    "clip 1.0": lambda: Clip(1.0),
    "clip at median": ClipAtMedian,
    "lr x0.1": lambda: LowerLr(0.1),
    "lr x0.01": lambda: LowerLr(0.01),
    "AdaGC": PerTensor,
    "ZClip": ZClip,
    "six sigma": LeaveOut,
    "fresh state": lambda: LowerLr(fresh=True),
}


def parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from (parameter for parameter in group["params"] if parameter.grad is not None)


def owned(optimizer: Optimizer) -> Iterator[tuple[Tensor, int]]:
    """Yield each gradient with a key of its parameter."""
    for parameter in parameters(optimizer):
        assert parameter.grad is not None
        yield parameter.grad, id(parameter)


def gradients(optimizer: Optimizer) -> list[Tensor]:
    return [gradient for gradient, _ in owned(optimizer)]


def norm_of(optimizer: Optimizer) -> float:
    norms = [torch.linalg.vector_norm(gradient).double() for gradient in gradients(optimizer)]
    return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0


def shrink(tensors: list[Tensor], share: float) -> None:
    """Multiply gradients by a share below 1; leave them as they are for a share above it."""
    if share < 1.0:
        for tensor in tensors:
            tensor.mul_(share)


def install(rule: Rule) -> None:
    """Apply a rule to every update of every optimizer of this process."""

    def before(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        rule.before(optimizer)

    def after(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        rule.after(optimizer)

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def main() -> None:
    name, script, *words = sys.argv[1:]
    install(RULES[name]())
    sys.argv = [script, *words]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
