"""Implements the published rules for spikes: each returns the steps at which it fires."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

Rule = Callable[[Sequence[float], Sequence[float]], list[int]]


def grad_norm_over_average(losses: Sequence[float], norms: Sequence[float]) -> list[int]:
    """Return the steps whose gradient norm is more than 2.5 sigma above its exponential moving average."""
    mean, square, fired = 0.0, 0.0, []
    for step, norm in enumerate(norms, 1):
        if not math.isfinite(norm):
            continue
        spread = math.sqrt(max(square - mean * mean, 0.0))
        if step > 100 and spread and norm > mean + 2.5 * spread:
            fired.append(step)
        share = max(0.01, 1 / step)
        mean, square = mean + share * (norm - mean), square + share * (norm * norm - square)
    return fired


def over_window(sigmas: float, window: int) -> Rule:
    """Return the rule that a loss or gradient norm is so many sigmas above the mean of its last readings."""

    def fires(losses: Sequence[float], norms: Sequence[float]) -> list[int]:
        return sorted({*_outliers(losses, sigmas, window), *_outliers(norms, sigmas, window)})

    return fires


def _outliers(values: Sequence[float], sigmas: float, window: int) -> list[int]:
    past: deque[float] = deque()
    total = square = 0.0
    fired = []
    for step, value in enumerate(values, 1):
        if not math.isfinite(value):
            continue
        if len(past) >= min(window, 128):
            mean = total / len(past)
            spread = math.sqrt(max(square / len(past) - mean * mean, 0.0))
            if value > mean + sigmas * spread:
                fired.append(step)
        past.append(value)
        total, square = total + value, square + value * value
        if len(past) > window:
            gone = past.popleft()
            total, square = total - gone, square - gone * gone
    return fired


RULES: dict[str, Rule] = {
    "gradient norm, z > 2.5 over EMA": grad_norm_over_average,
    "6 sigma over 128": over_window(6.0, 128),
    "7 sigma over 1000": over_window(7.0, 1000),
}


def incidents(steps: Sequence[int]) -> list[int]:
    """Return the first step of every alarm: steps that follow each other within 20 are one alarm."""
    return [step for before, step in zip([-100, *steps], steps, strict=False) if step - before > 20]
