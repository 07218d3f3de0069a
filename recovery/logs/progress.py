"""Tracks the progress of a run: steps, latest values, live knobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rung.jobs.model.saturation import Saturation
from rung.recovery.logs.reading import Reading, Readings
from rung.recovery.logs.step_count import MAX_STEP, PLAN_NAMES, PLANNED_STEPS, EpochCount, EpochStepEstimator
from rung.recovery.logs.training_bar import TrainingBar

# A log can print new names without end; the oldest is dropped first.
MAX_VALUES = 256
# Checkpoints whose step is remembered: a resume never goes back further than a few.
MAX_SAVED = 64
# Most values shown in a history: lr, grad_norm, scale and the terms of the loss.
MAX_LATEST = 32


@dataclass(frozen=True)
class Progress:
    """The progress of a run at one moment."""

    step: int | None = None
    first_step: int | None = None
    furthest_step: int | None = None
    # The latest training loss, finite or not.
    loss: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    effective: Mapping[str, object] = field(default_factory=dict)
    resumed_step: int | None = None
    saved_step: int | None = None
    # The latest of each: lr, grad_norm, scale, and the terms of the loss by their own names.
    latest: Mapping[str, float] = field(default_factory=dict)
    # The latest speed by its unit.
    throughput: Mapping[str, float] = field(default_factory=dict)
    # The checkpoints that the job recorded: file name -> step, the newest last.
    saved: Mapping[str, int] = field(default_factory=dict)
    # Whether Rung can set the knobs from inside: None: nothing heard; "": yes; a text: why not.
    hands: str | None = None
    # The updates that the process with the most of them had made at its end; None: no process has said so.
    updates: int | None = None
    # The steps of the whole run, where the log says it.
    total: int | None = None
    # Of the process in which it was most frequent; None: nothing was reported.
    saturation: Saturation | None = None
    # What of a checkpoint that Rung itself saved could not be brought back; None: nothing was said.
    not_whole: str | None = None


class ProgressTracker:
    """Follows the readings of one run in bounded memory."""

    def __init__(self) -> None:
        self.step: int | None = None
        # True when the job writes records: its other output is later or rounded.
        self.has_records = False
        # Whether a loss, a step or the same named numbers were seen twice: what comes first can be settings.
        self.has_begun = False
        self._names: tuple[str, ...] = ()
        self._first_step: int | None = None
        self._furthest_step: int | None = None
        self._loss: float | None = None
        self._resumed_step: int | None = None
        self._saved_step: int | None = None
        self._values: dict[str, float] = {}
        self._effective: dict[str, object] = {}
        self._latest: dict[str, float] = {}
        self._throughput: dict[str, float] = {}
        self._saved: dict[str, int] = {}
        self._hands: str | None = None
        self._updates: int | None = None
        self._saturation: Saturation | None = None
        self._not_whole: str | None = None
        self._planned_total: int | None = None
        self._bar_total: int | None = None
        # A log can have a bar and a named step, one counted per epoch and one over the run.
        self._bars, self._named = EpochCount(), EpochCount()
        self._epoch_steps = EpochStepEstimator()
        # A bar is drawn again when it is closed, also by a run that has just failed: that is not a new reading.
        self.redrawn = False
        self._drawn: tuple[int | None, str] | None = None
        self._training_bar = TrainingBar()
        # True when losses have their own step, so that no bar is needed for it.
        self._has_named_steps = False
        # The totals of bars without a loss that steps were taken from, before the first loss.
        self._unproven: set[int] = set()
        self._largest_total = 0
        self._total_with_loss: int | None = None

    def snapshot(self) -> Progress:
        return Progress(
            self.step,
            self._first_step,
            self._furthest_step,
            self._loss,
            dict(self._values),
            dict(self._effective),
            self._resumed_step,
            self._saved_step,
            dict(self._latest),
            dict(self._throughput),
            dict(self._saved),
            self._hands,
            self._updates,
            self._bar_total if self._planned_total is None else self._planned_total,
            self._saturation,
            self._not_whole,
        )

    @property
    def reports_its_end(self) -> bool:
        """Return whether the job will say from inside when it ends, and has not said so yet."""
        return self._hands == "" and self._updates is None

    def store(self, reading: Reading) -> None:
        """Store the values of a reading other than step and loss."""
        if not self.has_begun:
            self._see_beginning(reading)
        if values := reading.values:
            self._values.update(values)
            while len(self._values) > MAX_VALUES:
                del self._values[next(iter(self._values))]
            if PLANNED_STEPS in values and not reading.is_record:
                self._planned_total = int(values[PLANNED_STEPS])
        # Free text counts only before the first step; later it can mean something else.
        if reading.resumed_step is not None and (reading.is_record or self._first_step is None):
            self._resumed_step = reading.resumed_step
        if reading.is_record:
            self._store_record(reading)
        # Most readings have nothing to do with a bar.
        if reading.throughput or reading.total is not None or self._training_bar.open_total is not None:
            self._throughput.update(self._training_bar.see(reading))

    def _store_record(self, reading: Reading) -> None:
        """Store what only a record says."""
        if reading.effective:
            self._effective.update(reading.effective)
        if reading.saved_step is not None:
            self._saved_step = reading.saved_step
            self._keep_saved(reading.saved_file, reading.saved_step)
        if reading.loss is not None and not self.has_records:
            self.has_records = True
            self._forget_steps()
        if reading.hands is not None or reading.updates is not None:
            self._keep_hands(reading)
        # The first is the reason; what comes after it follows from it.
        self._not_whole = self._not_whole or reading.not_whole
        if reading.saturation is not None:
            self._keep_saturation(reading.saturation)

    def _see_beginning(self, reading: Reading) -> None:
        before, self._names = self._names, tuple(reading.values) or self._names
        again = bool(reading.values) and self._names == before
        self.has_begun = again or reading.loss is not None or reading.step is not None

    def _keep_hands(self, reading: Reading) -> None:
        """Remember what the processes of the job say; a job may start helpers that Rung does not reach."""
        has_trained = self._hands == "" and self.has_records
        if reading.hands is not None and not (reading.hands and has_trained):
            self._hands = reading.hands
        if reading.updates is not None:
            self._updates = max(reading.updates, self._updates or 0)

    def _keep_saturation(self, found: Saturation) -> None:
        """Keep the higher count: it grows within a process, and a process that begins anew must not hide it."""
        now = self._saturation
        if now is None or (found.saturated, found.updates) > (now.saturated, now.updates):
            self._saturation = found

    def _keep_saved(self, file: str | None, step: int) -> None:
        """Remember the step of a checkpoint file; a file that is written again becomes the newest."""
        if file:
            self._saved.pop(file, None)
            self._saved[file] = step
            if len(self._saved) > MAX_SAVED:
                del self._saved[next(iter(self._saved))]

    def advance(self, reading: Reading) -> int | None:
        """Update step and loss from a reading, and return the step it belongs to."""
        if reading.total is not None and self._is_another_bar(reading, reading.total):
            self.redrawn = False
            return self.step
        if reading.loss is not None:
            if self._loss is None:
                self._check_unproven(reading)
            self._loss = reading.loss
            self._has_named_steps = self._has_named_steps or (reading.step is not None and reading.total is None)
            self._keep_latest(reading)
        step = reading.step if reading.is_record else self._step_of(reading)
        if reading.total is not None:
            # A bar that has begun again, or counts inside an epoch, does not show the length of the run.
            self._bar_total = reading.total if step == reading.step and not reading.in_epoch else None
            self._detect_redraw(reading, step)
        else:
            self.redrawn = False
        if step is not None and step < MAX_STEP:
            self.step = step
            if self._furthest_step is None or step > self._furthest_step:
                self._furthest_step = step
                self._first_step = step if self._first_step is None else self._first_step
            return step
        if reading.step_is_late:
            # The bar above these numbers can be older than they are.
            self.step = None
        return self.step

    def steps_of(self, readings: Readings) -> Sequence[int] | None:
        """Return the steps of the whole run that readings belong to; None where each must be taken by itself."""
        first = readings.first
        if self.has_records is not first.is_record or not self.has_begun or self._training_bar.open_total is not None:
            return None
        if self._loss is None or self._first_step is None or not self._values.keys() >= first.values.keys():
            return None
        # A plain step counts over the whole run, unless it restarts with a new epoch.
        before = 0 if first.is_record or first.epoch is None else self._named.before(first.epoch)
        if before is None or before + readings.steps[-1] >= MAX_STEP:
            return None
        return [before + step for step in readings.steps] if before else readings.steps

    def take(self, readings: Readings) -> None:
        """Take readings with the steps of the whole run, as `store` and `advance` do one by one."""
        last, step = readings.last, readings.steps[-1]
        self._values.update(last.values)
        if last.throughput:
            self._throughput.update(last.throughput)
        self._loss, self.step, self.redrawn, self._has_named_steps = last.loss, step, False, True
        self._furthest_step = max(step, self._furthest_step or 0)
        self._keep_latest(last)
        if last.epoch is not None and not last.is_record:
            self._named.see(last.epoch, last.step or 0)

    def _detect_redraw(self, reading: Reading, step: int | None) -> None:
        """Set `redrawn` when a bar repeats its last state: the same loss, at the same step or without a step."""
        self.redrawn = False
        if reading.loss is None:
            return
        drawn = (step, repr(reading.loss))
        self.redrawn = self._drawn is not None and drawn in (self._drawn, (None, self._drawn[1]))
        self._drawn = self._drawn if self.redrawn else drawn

    def _is_another_bar(self, reading: Reading, total: int) -> bool:
        """Return whether a bar counts something other than training steps, such as an evaluation."""
        if reading.loss is not None:
            self._total_with_loss = total
        elif (
            total < self._largest_total
            or self._total_with_loss not in (None, total)
            or (self._has_named_steps and total not in self._training_bar)
        ):
            return True
        elif self._loss is None:
            self._unproven.add(total)
        self._largest_total = max(self._largest_total, total)
        return False

    def _check_unproven(self, reading: Reading) -> None:
        """Forget the steps of bars that counted something else, such as the data, when the first loss shows it."""
        own = reading.total if reading.total is not None else self._training_bar.open_total
        if self._unproven - {own} and (own is not None or reading.step is not None):
            self._forget_steps()
            self._bars = EpochCount()

    def _forget_steps(self) -> None:
        """Forget what lines before the training, or before its records, said about the step."""
        self.step = self._first_step = self._furthest_step = self._bar_total = None

    def _keep_latest(self, reading: Reading) -> None:
        latest, (_, _, lr, grad_norm, scale) = self._latest, reading[:5]
        if lr is not None:
            latest["lr"] = lr
        if grad_norm is not None:
            latest["grad_norm"] = grad_norm
        if scale is not None:
            latest["scale"] = scale
        for name in reading.loss_terms:
            if name in latest or len(latest) < MAX_LATEST:
                latest[name] = reading.values[name]

    def _step_of(self, reading: Reading) -> int | None:
        """Return the step of the whole run that a reading of free text belongs to, or None when it is unknown."""
        if reading.step_is_late and reading.epoch is not None:
            return self._epoch_steps.step_at(reading.epoch)
        if not PLAN_NAMES.isdisjoint(reading.values):
            for name in PLAN_NAMES.intersection(reading.values):
                self._epoch_steps.plan(name, reading.values[name])
        if reading.step is None:
            if reading.epoch is not None and not reading.values:
                self._bars.heading(reading.epoch)
            return None
        if reading.total is not None and not reading.in_epoch:
            self._epoch_steps.see_bar(reading)
        # A plain step counts over the whole run, unless it restarts with a new epoch.
        if reading.total is not None or reading.in_epoch:
            return self._bars.overall(reading, self._resumed_step)
        if reading.epoch is not None and reading.loss is not None:
            return self._named.overall(reading, self._resumed_step)
        return reading.step
