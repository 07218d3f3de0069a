"""Writes one `step` record for an update, although the script prints nothing.

The loss is the sum of all losses that backward was called on since the last update, so micro-batches count too. Numbers
on a GPU are copied without waiting and read at a later update; on the CPU they are read at once. An update costs the
host a few microseconds, unless a record is due.
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
from rung_inside.zero_edit.telemetry.report_rate import ReportRate

# After so many updates of other optimizers in a row, one of them is reported instead of the first.
GONE = 8
# Updates before a bad number that are reported with it, though none was due: they show how it came about.
RUN_UP = 8


class StepRecorder:
    """Collects the numbers of each update and writes the records that are due."""

    def __init__(self) -> None:
        self.rate = ReportRate()
        self.readback = AsyncReadback()
        self.loss: float | None = None
        self.pending: Any = None
        self.norm: Any = None
        self._reporting: Any = None
        self._others = 0
        self._lr: Any = None
        self._in_update = False
        # Before the gradients are unscaled, their norm depends on the scale.
        self._is_unscaled = False
        # The newest updates that were not reported; the last one of a run is.
        self._unreported: deque[Received] = deque(maxlen=RUN_UP)
        self._left_out = _range(run_state.asked_knob("skip"))

    # What happens before an update.

    def backward(self, loss: Any) -> None:
        if loss.device.type != "cpu":
            loss = loss.detach()
            self.pending = loss if self.pending is None or self._in_update else self.pending + loss
            return
        value = loss.item()
        # A closure runs several times for one update: its newest loss counts.
        self.loss = value if self.loss is None or self._in_update else self.loss + value
        if not math.isfinite(value):
            self._report_run_up()
            replay.on_nonfinite_loss(run_state.step() + 1)

    def unscaled(self, _optimizer: Any) -> None:
        self._is_unscaled = True

    def clipped(self, norm: Any) -> None:
        if self._is_unscaled or not _scaler_is_on():
            self.norm = norm

    def before_update(self, optimizer: Any) -> None:
        self._in_update = True
        self._lr = optimizer.param_groups[0].get("lr")
        if self.norm is None and (self._is_unscaled or not _scaler_is_on()):
            self.norm = sampled_grad_norm.sampled_norm(optimizer)

    # What happens after it.

    def updated(self, optimizer: Any, skipped: bool | None) -> None:
        now, step = perf_counter(), run_state.step()
        if step in self._left_out:
            skipped = None  # by the skip knob, not for its numbers
        if self._is_reporting(optimizer):
            if self.pending is not None:
                self._submit(optimizer, step, now, skipped)
            elif self.loss is not None or skipped:
                self._record_now(step, now, skipped)
        elif self.loss is not None and not math.isfinite(self.loss) and self.rate.due_urgent(now):
            self._report_step(step, now, skipped)
        self.loss = self.pending = self.norm = None
        self._in_update = self._is_unscaled = False

    def _is_reporting(self, optimizer: Any) -> bool:
        """Return whether the updates of this optimizer are reported: the first that stepped, while it does."""
        if self._reporting is not None and self._reporting() is optimizer:
            self._others = 0
            return True
        self._others += 1
        if self._reporting is None or self._reporting() is None or self._others > GONE:
            self._reporting, self._others = weakref.ref(optimizer), 0
            return True
        return False

    def _record_now(self, step: int, now: float, skipped: bool | None) -> None:
        """Report an update whose numbers are all on the host."""
        replay.on_update(step, skipped=bool(skipped))
        if skipped or (self.loss is not None and not math.isfinite(self.loss)):
            due = self.rate.due_urgent(now)
        else:
            self.rate.saw_good()
            due = self.rate.due(now)
        if due:
            self._report_step(step, now, skipped)
        else:
            self._unreported.append(Received(step, self.loss, None, None, None, skipped, True))

    def _report_run_up(self) -> None:
        """Report the updates before the first bad number, before its own record."""
        if self.rate.newest_was_good:
            for received in self._unreported:
                _emit(received)
            self._unreported.clear()

    def _report_step(self, step: int, now: float, skipped: bool | None) -> None:
        self.rate.reported(now)
        self._unreported.clear()
        _emit(Received(step, self.loss, self._used_lr(), _number(self.norm), _number(_scale()), skipped, True))

    def _used_lr(self) -> float | None:
        script_lr = _number(self._lr)
        return None if script_lr is None else script_lr * lr_factor.newest_factor()

    def _submit(self, optimizer: Any, step: int, now: float, skipped: bool | None) -> None:
        """Submit the numbers of this update, and report those that have arrived."""
        flag = None if skipped is not None else _found_inf(optimizer)
        self.readback.add(Submitted(step, skipped, self._used_lr()), self.pending, flag)
        if self.readback.arrived():
            self._report_received(now)
        if self.readback.should_send(now):
            self.readback.send(now, self.norm, _scale())

    def _report_received(self, now: float) -> None:
        """Report what has arrived from the GPU: every bad number, and the newest update if one is due."""
        for received in self.readback.take():
            bad = received.loss is not None and not math.isfinite(received.loss)
            replay.on_update(received.step, skipped=bool(received.skipped))
            if bad:
                self._report_run_up()
                replay.on_nonfinite_loss(received.step)
            if bad or received.skipped:
                due = self.rate.due_urgent(now)
            else:
                self.rate.saw_good()
                due = received.is_last and self.rate.due(now)
            if due:
                self.rate.reported(now)
                self._unreported.clear()
                _emit(received)
            else:
                self._unreported.append(received)

    def finish(self) -> None:
        """Report what is left when the script ends or fails; now waiting for a GPU does no harm."""
        now = perf_counter()
        if self.loss is not None and not math.isfinite(self.loss):
            self._report_step(run_state.step() + 1, now, None)
            self.loss = None
        for _ in range(2):
            if self.readback.is_pending:
                self.readback.wait()
                self._report_received(now)
                self.readback.send(now, None, None)
        if self._unreported:
            _emit(self._unreported[-1])
            self._unreported.clear()


def _scale() -> Any:
    """Return the scale of the live scaler on its device, without waiting for it."""
    for scaler in run_state.scalers:
        if scaler.is_enabled():
            return getattr(scaler, "_scale", None)
    return None


def _scaler_is_on() -> bool:
    return any(scaler.is_enabled() for scaler in run_state.scalers)


def _found_inf(optimizer: Any) -> Any:
    """Return the flag on the GPU by which an optimizer that unscales itself skips an update."""
    for scaler in run_state.scalers:
        state = getattr(scaler, "_per_optimizer_states", {}).get(id(optimizer), {})
        for flag in state.get("found_inf_per_device", {}).values():
            return flag
    return None


def _number(value: Any) -> float | None:
    """Return a number that is on the host; None for one on a GPU."""
    if isinstance(value, torch.Tensor):
        return float(value) if value.device.type == "cpu" and value.numel() == 1 else None
    return None if value is None else float(value)


def _emit(received: Received) -> None:
    short = records.short
    records.emit(
        "step",
        step=received.step,
        loss=None if received.loss is None else short(received.loss),
        lr=None if received.lr is None else short(received.lr),
        grad_norm=None if received.norm is None else short(received.norm),
        scale=received.scale,
        skipped=received.skipped,
    )


def _range(text: Any) -> range:
    """Return the numbers of the updates that are left out."""
    first, _, last = str(text or "").partition("-")
    return range(int(first), int(last) + 1) if first.isdigit() and last.isdigit() else range(0)


recorder = StepRecorder()


def install(_torch: Any) -> None:
    for event in ("backward", "unscaled", "clipped", "before_update", "updated"):
        run_state.subscribe(event, getattr(recorder, event))
    on_exit.on_end(recorder.finish)
