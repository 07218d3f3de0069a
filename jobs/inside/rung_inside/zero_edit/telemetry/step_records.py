"""Writes one `step` record for an update, although the script prints nothing.

The loss is the sum of all losses that backward was called on since the last update, so micro-batches count too. Numbers
on a GPU are copied without waiting and read at a later update; on the CPU they are read at once. An update costs the
host a few microseconds, unless a record is due.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import torch

from rung_inside.contract import records
from rung_inside.patching import on_exit
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import lr_factor
from rung_inside.zero_edit.replay import replay
from rung_inside.zero_edit.telemetry import courses, report_rate
from rung_inside.zero_edit.telemetry.async_readback import EVERY, REPORTED, AsyncReadback, Numbers
from rung_inside.zero_edit.telemetry.sampled_grad_norm import NormSampler

# The first updates, whose numbers are read from a GPU at once.
AT_ONCE = 8
# Where numbers are read at once.
HOST = "cpu"
# Updates before a bad number that are reported with it, though none was due: they show how it came about.
RUN_UP = 8

_gradients = run_state.gradients


class StepRecorder:
    """Collects the numbers of each update and writes the records that are due."""

    def __init__(self) -> None:
        self.courses = courses.Courses()
        self.readback = AsyncReadback()
        self.sampler = NormSampler()
        self.loss: float | None = None
        self.pending: Any = None
        self._lr: float | None = None
        self._in_update = False
        # The newest updates that were not reported; the last one of a run is.
        self._unreported: deque[Numbers] = deque(maxlen=RUN_UP)
        self._newest_was_good = True
        # The optimizer of the newest update, if that was good, and nothing is held back that another one could change.
        self._steady: courses.Source | None = None
        # Updates of optimizers that may take turns with the others or begin a new course.
        self._held: list[Numbers] = []
        self._left_out = _range(run_state.asked_knob("skip"))

    # What happens before an update.

    def backward(self, loss: Any) -> None:
        if loss.device.type != HOST:
            # A loss that was scaled comes without its graph.
            loss = loss.detach() if loss.requires_grad else loss
            if run_state.count.updates < AT_ONCE and _can_wait(loss) and not math.isfinite(loss.item()):
                # Most faults of a script are there from the start, and before the update its weights are still good.
                replay.on_nonfinite_loss(run_state.step() + 1)
            self.pending = loss if self.pending is None or self._in_update else self.pending + loss
            return
        value = loss.item()
        # A closure runs several times for one update: its newest loss counts.
        self.loss = value if self.loss is None or self._in_update else self.loss + value
        if not math.isfinite(value):
            self._report_run_up()
            replay.on_nonfinite_loss(run_state.step() + 1)

    def before_update(self, optimizer: Any) -> None:
        self._in_update = True
        groups = optimizer.param_groups
        lr = groups[0].get("lr") if len(groups) == 1 else _largest_lr(groups)
        self._lr = lr if type(lr) is float else _number(lr)
        if _gradients.norm is None:
            self._sample_norm(optimizer)

    def _sample_norm(self, optimizer: Any) -> None:
        number = self.courses.number_of(run_state.step())
        if not (self.sampler.is_due(number) and self.courses.is_reporting(self.courses.source(optimizer))):
            return
        if _gradients.are_unscaled or run_state.live_scaler() is None:
            _gradients.norm = self.sampler.norm(optimizer, number)

    # What happens after it.

    def updated(self, optimizer: Any, skipped: bool | None) -> None:
        count, source = run_state.count, self._steady
        step = run_state.step() if count.first is None else count.first + count.updates
        if source is None or source.optimizer() is not optimizer:
            source = self.courses.source(optimizer)
        is_left_out = step in self._left_out  # by the skip knob, not for its numbers
        known = None if is_left_out else skipped
        if self.pending is not None:
            flag = None if is_left_out or skipped is not None else _found_inf(optimizer)
            self._submit(step, source, known if flag is None else flag)
        elif self.loss is not None or skipped:
            norm, scale = _number(_gradients.norm), _number(getattr(run_state.live_scaler(), "_scale", None))
            lr = self._used_lr() if run_state.asked else self._lr
            self._take(Numbers(step, source, self.loss, lr, norm, scale, known))
        self.loss = self.pending = _gradients.norm = None
        self._in_update = _gradients.are_unscaled = False

    def _used_lr(self) -> float | None:
        # Without an lr asked the factor is 1.
        if self._lr is None or run_state.asked.get("lr") is None:
            return self._lr
        return self._lr * lr_factor.newest_factor()

    def _submit(self, step: int, source: courses.Source, skipped: Any) -> None:
        """Submit the numbers of an update on a GPU, and report those that have arrived."""
        # Asking whether there is a GPU takes longer than all the rest; where the loss is says so.
        if self.pending.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        number = self.courses.number_of(step)
        is_due = report_rate.is_due(number)
        norm = scale = None
        if is_due:
            # On its device, without waiting for it.
            norm, scale = _gradients.norm, getattr(run_state.live_scaler(), "_scale", None)
            # The scaler changes its scale in place, perhaps before the copy.
            scale = scale.clone() if isinstance(scale, torch.Tensor) else None
        lr = self._used_lr() if run_state.asked else self._lr
        held = self.readback.add(Numbers(step, source, self.pending, lr, norm, scale, skipped))
        if self.readback.in_flight and self.readback.arrived():
            self._take_received()
        if held >= EVERY or (is_due and (number <= AT_ONCE or held >= REPORTED)):
            self.readback.send()

    def _take_received(self) -> None:
        """Take what has arrived from the GPU."""
        with records.together():
            for numbers in self.readback.take():
                if not (numbers.loss is None or math.isfinite(numbers.loss)):
                    self._report_run_up()
                    records.write_held()
                    replay.on_nonfinite_loss(numbers.step)
                self._take(numbers)

    def _take(self, numbers: Numbers) -> None:
        """Take the numbers of one update, in order, and report what is due."""
        loss, norm = numbers.loss, numbers.norm
        is_good = (loss is None or math.isfinite(loss)) and (norm is None or math.isfinite(norm))
        if is_good and numbers.source is self._steady and not numbers.skipped:
            # As `_take_any`, which has nothing else to do where the update before was good too.
            if report_rate.is_due(numbers.step - (self.courses.start or 0)):
                self._emit_due(numbers)
            else:
                self._unreported.append(numbers)
        else:
            self._take_any(numbers)

    def _take_any(self, numbers: Numbers) -> None:
        """Take the numbers of any update: of a new optimizer, of a bad update, or after one."""
        self._steady = None
        place = self.courses.place(numbers.source, numbers.step)
        if place == courses.REPORTED and not self._held:
            self._report_if_due(numbers)
            return
        if place == courses.NEW:
            self._begin_course()
            place = courses.REPORTED if self.courses.is_reporting(numbers.source) else courses.OTHER
        if place == courses.REPORTED:
            self._held.clear()
            self._report_if_due(numbers)
        elif _is_bad(numbers):
            if numbers.source.rate.is_due(self.courses.number_of(numbers.step), bad=True):
                _emit(numbers, optimizer=numbers.source.number)
        elif place == courses.HELD and len(self._held) < courses.MOST_IN_A_ROW:
            self._held.append(numbers)

    def _begin_course(self) -> None:
        """Report the new course, and the updates of it that were held back."""
        now = self.courses
        records.emit("course", number=now.number, step=(now.start or 0) + 1, why=now.why)
        held, self._held = self._held, []
        self._unreported.clear()
        for numbers in held:
            if now.is_reporting(numbers.source):
                self._report_if_due(numbers)

    def _report_if_due(self, numbers: Numbers) -> None:
        skipped = bool(numbers.skipped)
        replay.on_update(numbers.step, skipped=skipped)
        bad = skipped or _is_bad(numbers)
        self._newest_was_good = not bad
        self._steady = None if bad else numbers.source
        if numbers.source.rate.is_due(self.courses.number_of(numbers.step), bad=bad):
            self._emit_due(numbers)
        else:
            self._unreported.append(numbers)

    def _emit_due(self, numbers: Numbers) -> None:
        self._unreported.clear()
        _emit(numbers)

    def _report_run_up(self) -> None:
        """Report the updates before the first bad number, before its own record."""
        if self._newest_was_good:
            for numbers in self._unreported:
                _emit(numbers)
            self._unreported.clear()

    def unanswered(self) -> None:
        """Report all updates, so that none comes after what the script prints about the batches it leaves out."""
        for _ in range(2):
            if self.readback.is_pending:
                self.readback.wait()
                self._take_received()
                self.readback.send()

    def finish(self) -> None:
        """Report what is left when the script ends or fails; now waiting for a GPU does no harm."""
        self.unanswered()
        if self.courses.may_end_new:
            self.courses.begin_new()
            self._begin_course()
        if self._unreported:
            _emit(self._unreported[-1])
            self._unreported.clear()
        if self.loss is not None and not math.isfinite(self.loss):
            # The script ended between a backward pass and its update.
            norm, scale = _number(_gradients.norm), _number(getattr(run_state.live_scaler(), "_scale", None))
            _emit(Numbers(run_state.step() + 1, None, self.loss, self._used_lr(), norm, scale, None))
            self.loss = None


def _largest_lr(groups: Any) -> float | None:
    """Return the largest learning rate of an optimizer's groups; others may be frozen or smaller by design."""
    return max((lr for group in groups if (lr := _number(group.get("lr"))) is not None), default=None)


def _can_wait(loss: Any) -> bool:
    """Return whether a number can be read from the GPU at once."""
    return bool(loss.is_cuda) and not torch.cuda.is_current_stream_capturing()


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


def _is_bad(numbers: Numbers) -> bool:
    """Return whether the loss is not finite, or the gradients that were used are not."""
    loss, norm = numbers.loss, numbers.norm
    if loss is not None and not math.isfinite(loss):
        return True
    return not (norm is None or numbers.skipped or math.isfinite(norm))


def _emit(numbers: Numbers, optimizer: int | None = None) -> None:
    loss, lr, norm = numbers.loss, numbers.lr, numbers.norm
    # As records.short, without a call for each.
    records.emit(
        "step",
        step=numbers.step,
        loss=None if loss is None else float(f"{loss:.6g}"),
        lr=None if lr is None else float(f"{lr:.6g}"),
        grad_norm=None if norm is None else float(f"{norm:.6g}"),
        scale=numbers.scale,
        skipped=numbers.skipped,
        optimizer=optimizer,
    )


def _range(text: Any) -> range:
    """Return the numbers of the updates that are left out."""
    first, _, last = str(text or "").partition("-")
    return range(int(first), int(last) + 1) if first.isdigit() and last.isdigit() else range(0)


recorder = StepRecorder()


def install(_torch: Any) -> None:
    for event in ("unanswered", "backward", "before_update", "updated"):
        run_state.subscribe(event, getattr(recorder, event))
    on_exit.on_end(recorder.finish)
