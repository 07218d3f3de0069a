"""Finds when loss and gradient norm went wrong before a fault, and whether by a spike or a drift."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from statistics import median

from rung.recovery.monitors.levels import EARLY_ONSET, JUMP, LR_RAISED

KEPT = 512
# Readings in the recent past, and the fewest that are enough to judge.
PAST = 64
FEWEST = 8
# 6 sigma gave 0.06 false alarms per 1000 healthy steps where 2.5 sigma gave 11.9; 1.4826 x MAD is a sigma that
# outliers do not change.
SIGMAS = 6 * 1.4826
# A flat curve has almost no MAD: a rise below this share of its level does not count.
LOSS_FLOOR = 0.1
GRAD_NORM_FLOOR = 1.0
# A blow-up within this many reported steps, or a gradient norm this many times the one before, is a spike.
SPIKE_READINGS = 3
SPIKE_JUMP = 10.0
# Fewer readings than this are a run's first steps. A loss that blows up there has too high an lr, because nothing
# is learned yet that a spike could destroy.
FIRST_STEPS = 16
# Readings over which the lr must still be rising.
STILL = 8

_Series = list[float | None]


class OnsetTracker:
    """Remembers the last readings and finds where the final bad ones began."""

    def __init__(self) -> None:
        self._readings: deque[tuple[int | None, float | None, float | None]] = deque(maxlen=KEPT)
        self._lrs: deque[float] = deque(maxlen=2 * PAST)
        self.first_norm: float | None = None

    def add(self, step: int | None, loss: float | None, grad_norm: float | None, lr: float | None = None) -> None:
        self._readings.append((step, loss, grad_norm))
        if self.first_norm is None and grad_norm is not None and math.isfinite(grad_norm):
            self.first_norm = grad_norm
        if lr is not None:
            self._lrs.append(lr)

    def add_many(
        self, steps: Sequence[int], losses: Sequence[float], norms: Sequence[float] | None, lrs: Sequence[float] | None
    ) -> None:
        """Take readings in a row, all of finite numbers; None: they have no such number."""
        self._readings.extend(zip(steps, losses, norms if norms is not None else repeat(None), strict=False))
        if self.first_norm is None and norms is not None:
            self.first_norm = norms[0]
        if lrs is not None:
            self._lrs.extend(lrs)

    def locate(self, step: int | None, *, is_bad_value: bool) -> tuple[int | None, str | None]:
        """Return (onset, shape) for a fault at `step`, each None when the numbers do not show it.

        A bad value right after numbers in the normal range is a spike at its own step.
        """
        past, fault_step = list(self._readings)[-(2 * PAST) :], step
        while past and past[-1][1] is not None and not math.isfinite(past[-1][1]):
            past.pop()
        # NaN gradients with finite losses: a log that filters NaN out, or shows averages.
        while is_bad_value and past and past[-1][2] is not None and math.isnan(past[-1][2]):
            first = past.pop()[0]
            step = step if first is None else first
        if early := _early_blow_up(past):
            return early
        losses: _Series = [reading[1] for reading in past]
        # A NaN norm is no rise: it comes with a loss scaler that skips the update.
        norms: _Series = [None if norm is None or math.isnan(norm) else norm for _, _, norm in past]
        starts = [
            start
            for series, floor in ((losses, LOSS_FLOOR), (norms, GRAD_NORM_FLOOR))
            if (start := _last_rise(series, floor)) is not None
        ]
        if not starts:
            return (step if step != fault_step else None), None
        start = min(starts)
        if start == len(past):
            return (step, "spike") if is_bad_value else (None, None)
        # While the learning rate is rising, it is the cause, however quickly the numbers rise.
        return past[start][0], "spike" if _is_spike(losses, norms, start) and not self._lr_is_rising() else "drift"

    def _lr_is_rising(self) -> bool:
        """Return whether a schedule is still raising the learning rate."""
        lrs = self._lrs
        return bool(lrs) and lrs[-1] > LR_RAISED * lrs[0] and lrs[-1] > lrs[-min(len(lrs), STILL)]


def _early_blow_up(past: Sequence[tuple[int | None, float | None, float | None]]) -> tuple[int | None, str] | None:
    """Return (onset, shape) of a loss that blew up in a run's first steps; None when it did not."""
    readings = [(step, loss) for step, loss, _ in past if loss is not None and math.isfinite(loss)]
    if not 2 <= len(readings) < FIRST_STEPS or len(past) >= FIRST_STEPS:
        return None
    ceiling = EARLY_ONSET * abs(readings[0][1])
    high = next((index for index in range(len(readings), 0, -1) if readings[index - 1][1] <= ceiling), 0)
    if high == len(readings):
        return None
    # Only the step where it left its range counts: after that it grows fast, whatever the cause.
    jumped = high > 0 and readings[high][1] > JUMP * abs(readings[high - 1][1]) > 0
    return readings[high][0], "spike" if jumped else "drift"


def _last_rise(series: _Series, floor: float) -> int | None:
    """Return the index where the final readings far above the recent past begin; the length when there are none."""
    normal: deque[float] = deque(maxlen=PAST)
    start: int | None = None
    for index, value in enumerate(series):
        if value is None:
            continue
        if len(normal) >= FEWEST and not value <= _ceiling(normal, floor):
            start = index if start is None else start
        elif math.isfinite(value):
            start = None
            normal.append(value)
    if len(normal) < FEWEST:
        return None
    return len(series) if start is None else start


def _ceiling(normal: deque[float], floor: float) -> float:
    level = median(normal)
    spread = median(abs(value - level) for value in normal)
    return level + max(SIGMAS * spread, floor * abs(level))


def _is_spike(losses: _Series, norms: _Series, start: int) -> bool:
    """Return whether the rise from `start` on was quick: near its full height, or not finite, after 3 readings."""
    if len(losses) - start <= SPIKE_READINGS:
        return True
    # Only the beginning and only finite norms count: with a loss scaler an infinite norm is normal.
    for before, after in zip(norms[max(0, start - 1) :], norms[start : start + SPIKE_READINGS], strict=False):
        if before and after and math.isfinite(after) and after > SPIKE_JUMP * before:
            return True
    heights = [value for value in losses[start:] if value is not None]
    level = median([value for value in losses[:start] if value is not None] or [0.0])
    if not heights:
        return False
    half = level + (max(heights) - level) / 2
    return max(heights[:SPIKE_READINGS]) >= half
