"""Writes one `step` record for an update, although the script prints nothing.

The loss is the sum of all losses that backward was called on since the last update, so micro-batches count too. Numbers
on a GPU are copied without waiting and read at a later update; on the CPU they are read at once. An update costs the
host a few microseconds, unless a record is due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import isfinite
from typing import Any

from rung_inside.contract import records
from rung_inside.patching import on_exit, patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import lr_factor
from rung_inside.zero_edit.replay import replay
from rung_inside.zero_edit.telemetry import courses, effective_knobs, report_rate, step_numbers, waiting_records
from rung_inside.zero_edit.telemetry.async_readback import AS_NEXT, EVERY, AsyncReadback, Numbers
from rung_inside.zero_edit.telemetry.effective_knobs import EVERY_READ, FIRST_READ
from rung_inside.zero_edit.telemetry.report_rate import FIRST, WIDEST
from rung_inside.zero_edit.telemetry.sampled_grad_norm import NormSampler
from rung_inside.zero_edit.telemetry.step_numbers import norm_and_scale

# The first updates, whose numbers are read from a GPU at once.
AT_ONCE = 8
# Updates before a bad number that are reported with it, though none was due: they show how it came about.
RUN_UP = 8

_count = run_state.count
_gradients = run_state.gradients
_asked = run_state.asked


class StepRecorder:
    """Collects the numbers of each update and writes the records that are due."""

    def __init__(self) -> None:
        self.courses = courses.Courses()
        self.readback = AsyncReadback()
        self.sampler = NormSampler()
        self.loss: float | None = None
        self.pending: Any = None
        # The loss scale at the newest copy, on its device; the scaler changes it in place.
        self._scale: Any = None
        self._lr: float | None = None
        self._in_update = False
        # The newest updates that were not reported; the last one of a run is. Good ones on the CPU are tuples.
        self._unreported: deque[Any] = deque(maxlen=RUN_UP)
        self._newest_was_good = True
        # The optimizer of the newest update, if that was good, and nothing is held back that another one could change.
        self._steady: courses.Source | None = None
        # Returns this optimizer, if no knob is asked and the step of the checkpoint is known.
        self._plain: Callable[[], Any] = run_state.nothing
        # Updates of optimizers that may take turns with the others or begin a new course.
        self._held: list[Numbers] = []
        self._left_out = step_numbers.range_of(run_state.asked_knob("skip"))

    # What happens before an update.

    def backward(self, loss: Any) -> None:
        if type(loss) is float and self.loss is None and isfinite(loss):
            # As below, for the first backward pass of an update.
            self.loss = loss
            return
        if type(loss) is not float and not run_state.is_on_host(loss):
            # A loss that was scaled comes without its graph.
            loss = loss.detach() if loss.requires_grad else loss
            if _count.updates < AT_ONCE and step_numbers.can_wait(loss) and not isfinite(loss.item()):
                # Most faults of a script are there from the start, and before the update its weights are still good.
                replay.on_nonfinite_loss(run_state.step() + 1)
            self.pending = loss if self.pending is None or self._in_update else self.pending + loss
            return
        value = loss if type(loss) is float else loss.item()
        # A closure runs several times for one update: its newest loss counts.
        self.loss = value if self.loss is None or self._in_update else self.loss + value
        if not isfinite(value):
            self._report_run_up()
            replay.on_nonfinite_loss(run_state.step() + 1)

    def before_update(self, optimizer: Any) -> None:
        self._in_update = True
        groups = optimizer.param_groups
        lr = groups[0].get("lr") if len(groups) == 1 else step_numbers.largest_lr(groups)
        self._lr = lr if type(lr) is float else step_numbers.number(lr)
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
        updates, loss = _count.updates, self.loss
        # Not as a callback of its own: most updates have nothing to do for it.
        if updates <= FIRST_READ or not updates % EVERY_READ:
            patch.quietly(effective_knobs.report, optimizer, skipped)
        if self._plain() is not optimizer or skipped is not False or loss is None or self.pending is not None:
            self._take_update(optimizer, skipped)
        else:
            # As `_take_update`, without its calls: one good update more, whose numbers are on the host.
            step = (_count.first or 0) + updates
            number = step - (self.courses.start or 0)
            apart, norm, scale = number // FIRST, None, None
            is_due = apart < 2 or not number % (apart if apart < WIDEST else WIDEST)
            if is_due or not _gradients.are_unscaled:
                norm, scale = norm_and_scale()
            values = step, self._steady, loss, self._lr, norm, scale, skipped
            if not isfinite(loss if norm is None else loss + norm):
                self._take(Numbers(*values), is_due)
            elif is_due:
                self._unreported.clear()
                waiting_records.add(values)
            else:
                self._unreported.append(values)
        self.loss = self.pending = _gradients.norm = None
        self._in_update = _gradients.are_unscaled = False

    def _take_update(self, optimizer: Any, skipped: bool | None) -> None:
        """Take the numbers of any update."""
        first, source = _count.first, self._steady
        step = run_state.step() if first is None else first + _count.updates
        if source is None or source.optimizer() is not optimizer:
            source = self.courses.source(optimizer)
        if skipped is None or self._left_out:
            skipped = self._skipped_for_its_numbers(optimizer, step, skipped)
        number = 1 if self.courses.start is None else step - self.courses.start
        # As report_rate.is_due, without its call.
        apart = number // FIRST
        is_due = apart < 2 or not number % (apart if apart < WIDEST else WIDEST)
        lr = lr_factor.used(self._lr) if _asked else self._lr
        if self.pending is not None:
            # Asking whether there is a GPU takes longer than all the rest; where the loss is says so.
            if not (self.pending.is_cuda and step_numbers.is_capturing()):
                norm = scale = None
                if is_due:
                    # On its device, without waiting for it.
                    norm, scale, self.readback.wants_scale = _gradients.norm, AS_NEXT, True
                elif skipped:
                    norm = _gradients.norm
                if skipped is not False and (is_due or skipped is True):
                    # It may change before the next update.
                    scale = step_numbers.copied_scale()
                self.readback.held.append(Numbers(step, source, self.pending, lr, norm, scale, skipped))
                if self.readback.in_flight or len(self.readback.held) >= EVERY or number <= AT_ONCE:
                    self._exchange(number)
        elif self.loss is not None or skipped:
            # A scaler skips an update whose norm is not finite.
            is_read = is_due or skipped is not False or not _gradients.are_unscaled
            norm, scale = norm_and_scale() if is_read else (None, None)
            self._take(Numbers(step, source, self.loss, lr, norm, scale, skipped), is_due, may_wait=True)

    def _skipped_for_its_numbers(self, optimizer: Any, step: int, skipped: bool | None) -> Any:
        """Return whether a scaler has skipped this update, where that is known; the skip knob leaves it open."""
        if step in self._left_out:
            return None
        return step_numbers.found_inf(optimizer) if skipped is None and self.pending is not None else skipped

    def _exchange(self, number: int) -> None:
        """Report the updates that have arrived from the GPU, and send those that wait; the newest has this number."""
        if self.readback.in_flight and self.readback.arrived():
            self._take_received()
        if len(self.readback.held) >= EVERY or number <= AT_ONCE:
            self._scale = step_numbers.scale_tensor()
            self.readback.send(self._scale)

    def _take_received(self) -> None:
        """Take what has arrived from the GPU."""
        arrived = self.readback.take()
        if step_numbers.are_good(arrived, self._steady):
            self._take_good(arrived)
            return
        with records.together():
            for numbers in arrived:
                if not (numbers.loss is None or isfinite(numbers.loss)):
                    self._report_run_up()
                    records.write_held()
                    replay.on_nonfinite_loss(numbers.step)
                self._take(numbers, report_rate.is_due(numbers.step - (self.courses.start or 0)))

    def _take_good(self, arrived: list[Numbers]) -> None:
        """Report those of these good updates that are due: as `_take`, but without its call for each."""
        start, due = self.courses.start or 0, []
        for each in arrived:
            number = each.step - start
            # As report_rate.is_due, without its call.
            apart = number // FIRST
            if apart < 2 or not number % (apart if apart < WIDEST else WIDEST):
                due.append(each)
                self._unreported.clear()
            else:
                self._unreported.append(each)
        if due:
            step_numbers.emit_all(due)

    def _take(self, numbers: Numbers, is_due: bool, *, may_wait: bool = False) -> None:
        """Take the numbers of one update, in order, and report what is due; at once, or it may wait for others."""
        loss, norm = numbers.loss, numbers.norm
        is_good = (loss is None or isfinite(loss)) and (norm is None or isfinite(norm))
        if is_good and numbers.source is self._steady and not numbers.skipped:
            # As `_take_any`, which has nothing else to do where the update before was good too.
            if not is_due:
                self._unreported.append(numbers)
                return
            self._unreported.clear()
            waiting_records.add(step_numbers.as_tuple(numbers)) if may_wait else step_numbers.emit(numbers)
        else:
            self._take_any(numbers)

    def _take_any(self, numbers: Numbers) -> None:
        """Take the numbers of any update: of a new optimizer, of a bad update, or after one."""
        self._steady, self._plain = None, run_state.nothing
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
        elif step_numbers.is_bad(numbers):
            if numbers.source.rate.is_due(self.courses.number_of(numbers.step), bad=True):
                step_numbers.emit(numbers, optimizer=numbers.source.number)
        elif place == courses.HELD and len(self._held) < courses.MOST_IN_A_ROW:
            self._held.append(numbers)

    def _begin_course(self) -> None:
        """Report the new course, and the updates of it that were held back."""
        records.emit("course", number=self.courses.number, step=(self.courses.start or 0) + 1, why=self.courses.why)
        held, self._held = self._held, []
        self._unreported.clear()
        for numbers in held:
            if self.courses.is_reporting(numbers.source):
                self._report_if_due(numbers)

    def _report_if_due(self, numbers: Numbers) -> None:
        skipped = bool(numbers.skipped)
        replay.on_update(numbers.step, skipped=skipped)
        bad = skipped or step_numbers.is_bad(numbers)
        self._newest_was_good = not bad
        self._steady = None if bad else numbers.source
        self._plain = run_state.nothing if bad or _asked or _count.first is None else numbers.source.optimizer
        if numbers.source.rate.is_due(self.courses.number_of(numbers.step), bad=bad):
            self._unreported.clear()
            step_numbers.emit(numbers)
        else:
            self._unreported.append(numbers)

    def _report_run_up(self) -> None:
        """Report the updates before the first bad number, before its own record."""
        if self._newest_was_good:
            for each in self._unreported:
                step_numbers.emit(step_numbers.as_numbers(each))
            self._unreported.clear()

    def unanswered(self) -> None:
        """Report all updates, so that none comes after what the script prints about the batches it leaves out."""
        for _ in range(2):
            if self.readback.is_pending:
                self.readback.wait()
                self._take_received()
                scale = step_numbers.scale_tensor()
                # At the end of a script its scaler may be gone already.
                self.readback.send(self._scale if scale is None else scale)
        waiting_records.write()

    def finish(self) -> None:
        """Report what is left when the script ends or fails; now waiting for a GPU does no harm."""
        self.unanswered()
        if self.courses.may_end_new:
            self.courses.begin_new()
            self._begin_course()
        if self._unreported:
            step_numbers.emit(step_numbers.as_numbers(self._unreported[-1]))
            self._unreported.clear()
        if self.loss is not None and not isfinite(self.loss):
            # The script ended between a backward pass and its update.
            norm, scale = norm_and_scale()
            step_numbers.emit(
                Numbers(run_state.step() + 1, None, self.loss, lr_factor.used(self._lr), norm, scale, None)
            )
            self.loss = None


recorder = StepRecorder()


def install(_torch: Any) -> None:
    for event in ("unanswered", "backward", "before_update", "updated"):
        run_state.subscribe(event, getattr(recorder, event))
    on_exit.on_end(recorder.finish)
