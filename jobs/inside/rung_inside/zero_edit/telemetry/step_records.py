"""Owns the sight of a run from inside: one `step` record for an update, although the script prints nothing.

The loss is the sum of what backward was called on since the update before: what the update descends, also where a
script divides it over micro-batches. Numbers on a GPU are copied without waiting for it and read at a later update; on
the CPU they are read at once. The host's work per update is a few microseconds, unless a record is due.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from time import perf_counter
from typing import Any

import torch

from rung_inside.contract import records
from rung_inside.patching import on_exit
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import lr_factor
from rung_inside.zero_edit.replay import replay
from rung_inside.zero_edit.telemetry import sampled_grad_norm
from rung_inside.zero_edit.telemetry.async_readback import AsyncReadback, Received, Submitted
from rung_inside.zero_edit.telemetry.report_rate import Pace

# Updates of other optimizers after which one of them takes the place of the first, which no longer steps.
GONE = 8
# Updates before a bad number that are told with it, though none was due: how it came about shows there.
RUN_UP = 8


class StepRecorder:
    """What was seen since the last update, and what is still on its way from the GPU."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.later = AsyncReadback()
        self.loss: float | None = None
        self.pending: Any = None
        self.norm: Any = None
        self._first: Any = None
        self._others = 0
        self._lr: Any = None
        self._inside = False
        # The gradients have been unscaled; before that, a norm of them is that of the scale.
        self._true = False
        # The newest updates that were not told, since none was due; the last of a run is.
        self._untold: deque[Received] = deque(maxlen=RUN_UP)
        self._left_out = _range(run_state.asked("skip"))

    # What happens before an update.

    def backward(self, loss: Any) -> None:
        if loss.device.type != "cpu":
            loss = loss.detach()
            self.pending = loss if self.pending is None or self._inside else self.pending + loss
            return
        value = loss.item()
        # A closure is run again and again for one update: its newest loss is that of the update.
        self.loss = value if self.loss is None or self._inside else self.loss + value
        if not math.isfinite(value):
            self._tell_run_up()
            replay.bad_number(run_state.step() + 1)

    def unscaled(self, _optimizer: Any) -> None:
        self._true = True

    def clipped(self, norm: Any) -> None:
        if self._true or not _scaling():
            self.norm = norm

    def before_update(self, optimizer: Any) -> None:
        self._inside = True
        self._lr = optimizer.param_groups[0].get("lr")
        if self.norm is None and (self._true or not _scaling()):
            self.norm = sampled_grad_norm.now_and_then(optimizer)

    # What happens after it.

    def updated(self, optimizer: Any, skipped: bool | None) -> None:
        now, step = perf_counter(), run_state.step()
        if step in self._left_out:
            skipped = None  # by us, and not for its numbers
        if self._is_first(optimizer):
            if self.pending is not None:
                self._see_later(optimizer, step, now, skipped)
            elif self.loss is not None or skipped:
                self._see_now(step, now, skipped)
        elif self.loss is not None and not math.isfinite(self.loss) and self.pace.due_at_once(now):
            self._say(step, now, skipped)
        self.loss = self.pending = self.norm = None
        self._inside = self._true = False

    def _is_first(self, optimizer: Any) -> bool:
        """Tell whether this is the optimizer whose updates are reported: the first that stepped, while it does."""
        if self._first is not None and self._first() is optimizer:
            self._others = 0
            return True
        self._others += 1
        if self._first is None or self._first() is None or self._others > GONE:
            self._first, self._others = weakref.ref(optimizer), 0
            return True
        return False

    def _see_now(self, step: int, now: float, skipped: bool | None) -> None:
        """Report an update whose numbers are all at hand."""
        replay.see_skipped(step, skipped=bool(skipped))
        if skipped or (self.loss is not None and not math.isfinite(self.loss)):
            due = self.pace.due_at_once(now)
        else:
            self.pace.calm()
            due = self.pace.due(now)
        if due:
            self._say(step, now, skipped)
        else:
            self._untold.append(Received(step, self.loss, None, None, None, skipped, True))

    def _tell_run_up(self) -> None:
        """Tell the updates before the first bad number, and before anything that is told of it."""
        if self.pace.is_calm:
            for seen in self._untold:
                _emit(seen)
            self._untold.clear()

    def _say(self, step: int, now: float, skipped: bool | None) -> None:
        self.pace.reported(now)
        self._untold.clear()
        _emit(Received(step, self.loss, self._used_lr(), _number(self.norm), _number(_scale()), skipped, True))

    def _used_lr(self) -> float | None:
        own = _number(self._lr)
        return None if own is None else own * lr_factor.newest_factor()

    def _see_later(self, optimizer: Any, step: int, now: float, skipped: bool | None) -> None:
        """Send this update's numbers on their way, and report those that have come."""
        flag = None if skipped is not None else _found_inf(optimizer)
        self.later.add(Submitted(step, skipped, self._used_lr()), self.pending, flag)
        if self.later.arrived():
            self._report(now)
        if self.later.should_send(now):
            self.later.send(now, self.norm, _scale())

    def _report(self, now: float) -> None:
        """Report what has come from the GPU: every bad number, and the newest update when one is due."""
        for seen in self.later.take():
            bad = seen.loss is not None and not math.isfinite(seen.loss)
            replay.see_skipped(seen.step, skipped=bool(seen.skipped))
            if bad:
                self._tell_run_up()
                replay.bad_number(seen.step)
            if bad or seen.skipped:
                due = self.pace.due_at_once(now)
            else:
                self.pace.calm()
                due = seen.is_last and self.pace.due(now)
            if due:
                self.pace.reported(now)
                self._untold.clear()
                _emit(seen)
            else:
                self._untold.append(seen)

    def finish(self) -> None:
        """Report what was not told yet when the script ends or fails; now waiting for a GPU does no harm."""
        now = perf_counter()
        if self.loss is not None and not math.isfinite(self.loss):
            self._say(run_state.step() + 1, now, None)
            self.loss = None
        for _ in range(2):
            if self.later.waiting:
                self.later.wait()
                self._report(now)
                self.later.send(now, None, None)
        if self._untold:
            _emit(self._untold[-1])
            self._untold.clear()


def _scale() -> Any:
    """Return the scale of the live scaler where it is, without waiting for it."""
    for scaler in run_state.scalers:
        if scaler.is_enabled():
            return getattr(scaler, "_scale", None)
    return None


def _scaling() -> bool:
    return any(scaler.is_enabled() for scaler in run_state.scalers)


def _found_inf(optimizer: Any) -> Any:
    """Return the flag by which an optimizer that unscales by itself skips an update, still on its GPU."""
    for scaler in run_state.scalers:
        state = getattr(scaler, "_per_optimizer_states", {}).get(id(optimizer), {})
        for flag in state.get("found_inf_per_device", {}).values():
            return flag
    return None


def _number(value: Any) -> float | None:
    """Return a number that is at hand; what is still on a GPU is not."""
    if isinstance(value, torch.Tensor):
        return float(value) if value.device.type == "cpu" and value.numel() == 1 else None
    return None if value is None else float(value)


def _emit(seen: Received) -> None:
    short = records.short
    records.emit(
        "step",
        step=seen.step,
        loss=None if seen.loss is None else short(seen.loss),
        lr=None if seen.lr is None else short(seen.lr),
        grad_norm=None if seen.norm is None else short(seen.norm),
        scale=seen.scale,
        skipped=seen.skipped,
    )


def _range(text: Any) -> range:
    """Return the updates that are left out, by number."""
    first, _, last = str(text or "").partition("-")
    return range(int(first), int(last) + 1) if first.isdigit() and last.isdigit() else range(0)


sight = StepRecorder()


def install(_torch: Any) -> None:
    for event in ("backward", "unscaled", "clipped", "before_update", "updated"):
        run_state.on(event, getattr(sight, event))
    on_exit.on_end(sight.finish)
