"""Finds the faults that the numbers of a run show: loss, gradients, loss scale, early warning."""

from __future__ import annotations

import math
from dataclasses import replace

from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.spec.recovery_spec import EarlyWarning
from rung.recovery.detect.candidates import Certainty, FaultCandidates
from rung.recovery.detect.fault_builder import FaultBuilder
from rung.recovery.detect.said_in_words import SaidInWords
from rung.recovery.detect.several_ranks import is_over
from rung.recovery.logs.reading import Reading, Readings
from rung.recovery.monitors.divergence import DivergenceWarning
from rung.recovery.monitors.early_warning import EarlyWarningMonitor
from rung.recovery.monitors.fault_groups import BAD_SCALE
from rung.recovery.monitors.grad_finite import GradientMonitor
from rung.recovery.monitors.learning import LossHistory
from rung.recovery.monitors.loss_finite import LossMonitor
from rung.recovery.monitors.loss_scale import Backoff, LossScaleMonitor
from rung.recovery.monitors.onset import OnsetTracker

_K = FaultKind


class NumericFaults:
    """Feeds the readings of one run to its monitors, and opens and drops the candidates that they show.

    Early warnings begin after step `warns_after`, because what came before has been judged already; 0: with the first
    reading, also one of step 0, the loss of the untrained model.
    """

    def __init__(
        self, warning: EarlyWarning | None, candidates: FaultCandidates, builder: FaultBuilder, warns_after: int = 0
    ) -> None:
        self._warns_after = warns_after
        self._candidates, self._builder, self._warning = candidates, builder, warning
        self._gradients = GradientMonitor()
        self.begin_course()
        self._warning_certainty = Certainty.DECISIVE if warning and warning.stop else Certainty.AT_END
        self._held_out_bad = False
        self._bad_gradient: Fault | None = None  # since when the gradients are bad
        self._said = SaidInWords()

    def begin_course(self) -> None:
        """Forget the losses of another model or optimizer: a new one is compared with its own beginning."""
        self.history, self._losses, self._scales = LossHistory(), LossMonitor(), LossScaleMonitor()
        self.losses_without_step = 0  # finite ones, which the history leaves out
        self._warnings = EarlyWarningMonitor(self._warning)
        self._builder.onset = OnsetTracker()

    @property
    def is_healthy(self) -> bool:
        """Return whether the last few losses were finite."""
        return self._losses.healthy

    @property
    def all_bad(self) -> bool:
        """Return whether no loss was finite."""
        return not self._losses.ever_good

    @property
    def bad_in_a_row(self) -> int:
        """Return how many losses in a row were not finite, up to the newest."""
        return self._losses.bad_in_a_row

    def take(self, step: int | None, reading: Reading) -> list[Fault]:
        """Take one reading; return the faults to list now."""
        found = self._take_loss(step, reading) if reading.loss is not None else []
        gradients, norm = self._gradients, reading.grad_norm
        # Of most readings this is all: a finite norm after others.
        if gradients.bad or (norm is not None and not (gradients.ever_good and -math.inf < norm < math.inf)):
            found += self._take_gradients(reading)
        if reading.scale is not None or reading.skipped:
            kind = self._scales.report(step, reading.scale, reading.skipped)
            found += self._add_scale(kind) if kind is not None else []
        if not self._warns_after or step is None or step > self._warns_after:
            if self._candidates.by_kind:
                found += self._take_warning(step, reading)
            elif warned := self._warnings.see(step, reading):
                found += self._add_warning(warned)
        if reading.held_out_loss is not None:
            found += self._take_held_out(reading.held_out_loss)
        return found

    def is_quiet(self, readings: Readings) -> bool:
        """Return whether these readings, and all before them, are healthy, so that `take_quiet` may take them."""
        first, step, scales = readings.first, readings.steps[0], self._scales
        if self._candidates.by_kind or self._said.fault is not None or self._builder.replay or self._gradients.bad:
            return False
        is_known = self._gradients.ever_good or readings.norms is None
        if not is_known or not first.loss or not self._losses.is_quiet or step <= (self._warns_after or -1):
            return False
        return (first.scale is None or scales.is_quiet(step, first.scale)) and self._warnings.is_quiet(readings)

    def take_quiet(self, readings: Readings) -> int:
        """Take quiet readings up to the first that may bring something new; return how many these are."""
        count = self._warnings.see_quiet(readings)
        if not count:
            return 0
        _, _, steps, losses, lrs, norms, *_ = readings.up_to(count)
        self._losses.see_good(losses)
        if self._scales.is_last_word:
            self._scales.see_finite_loss()
        if readings.first.scale is not None:
            self._scales.report_same(steps[-1])
        self._builder.onset.add_many(steps, losses, norms, lrs)
        self.history.add_many(steps, losses, lrs)
        return count

    @property
    def has_scale(self) -> bool:
        return self._scales.is_known

    def say(self, kind: FaultKind, *, about_one_batch: bool) -> list[Fault]:
        """Take words about bad numbers in a log whose numbers come from inside."""
        if self._said.fault is None:
            # A fault takes a look at the last hundred readings, and such words may stand on every line.
            self._said.begin(self._builder.build(kind))
        proven = self._said.say(about_one_batch=about_one_batch)
        return self._candidates.add(self._said.fault, Certainty.DECISIVE) if proven and self._said.fault else []

    def hint(self, kind: FaultKind) -> list[Fault]:
        """Take a message about one bad batch; it counts like one bad number."""
        if kind is _K.GRAD_NONFINITE:
            return self._update_gradients(began=self._gradients.hint())
        began = self._losses.hint()
        self._update_nan()
        return self._add_nan() if began else []

    def back_off(self, step: int | None, event: Backoff) -> list[Fault]:
        """Take the message of a step that a scaler skipped."""
        self._gradients.back_off()
        kind = self._scales.back_off(step, event)
        return self._add_scale(kind) if kind is not None else []

    @property
    def is_open(self) -> bool:
        """Return whether the next readings decide whether a bad loss or gradient is a fault."""
        loss = self._losses.pending and not self._losses.confirmed
        return loss or (self._gradients.pending and not self._gradients.confirmed)

    def lines_missing(self) -> None:
        """Count anew what must come in a row: readings are missing here."""
        for each in (self._losses, self._gradients, self._scales, self._warnings, self._said):
            each.lines_missing()

    def record_at_end(self, whole: FaultCandidates) -> None:
        """Add the candidates that only the end of the log decides."""
        if self._scales.is_low and _K.SCALE_COLLAPSE not in whole:
            fault = self._builder.build_from_numbers(_K.SCALE_COLLAPSE, onset=self._scales.low_since)
            whole.record(fault, Certainty.AT_END)
        if self._scales.thrashes_at_end and not (_K.SCALE_THRASH in whole or _K.SCALE_COLLAPSE in whole):
            whole.record(self._builder.build_from_numbers(_K.SCALE_THRASH), Certainty.AT_END)
        warned = self._warnings.at_end()
        is_explained = _K.DIVERGENCE in whole or _K.NAN_LOSS in whole
        if warned and not is_explained and not self._losses.pending:
            whole.record(self._warning_fault(warned), Certainty.AT_END)
        # A loss of NaN shows the same; where the log hides it, only the gradients show it.
        shows_nan = _K.NAN_LOSS in whole and not self._losses.note
        if self._bad_gradient and self._gradients.pending and not shows_nan:
            whole.record(self._bad_gradient, Certainty.UNSURE)
        if self._said.fault:
            # The script may have said it before the step was run again.
            replay = self._said.fault.replay or self._builder.replay
            whole.record(replace(self._said.fault, replay=replay), self._said.certainty)

    def _take_loss(self, step: int | None, reading: Reading) -> list[Fault]:
        loss = reading.loss
        began = self._losses.see(reading)
        if loss is not None and -math.inf < loss < math.inf:
            if self._said.fault is not None:
                self._said.see_finite()
            if self._scales.is_last_word:
                self._scales.see_finite_loss()
        builder = self._builder
        builder.onset.add(step, loss, reading.grad_norm, reading.lr)
        # The run got past that step; only a replay of bad gradients still counts beside a finite loss.
        if builder.replay and self._losses.healthy and "grads" not in builder.replay and is_over(builder.replay, step):
            builder.replay = {}
        if self._candidates.by_kind:
            self._update_nan()
            if self._losses.healthy:
                # The run got past it; but gradients can be bad beside losses that look fine.
                self._candidates.get_past(step, self._still_open())
        if began:
            return self._add_nan()
        if step is not None and loss is not None and not self._losses.bad_in_a_row:
            self.history.add(step, loss, reading.lr)
        elif step is None and loss is not None and math.isfinite(loss):
            self.losses_without_step += 1
        return []

    def _still_open(self) -> set[FaultKind]:
        """Return the faults that a finite loss does not disprove."""
        kinds = {*BAD_SCALE}
        if self._gradients.pending:
            kinds.add(_K.GRAD_NONFINITE)
        if self._warnings.active:
            kinds.add(_K.DIVERGENCE)
        return kinds

    def _take_warning(self, step: int | None, reading: Reading) -> list[Fault]:
        """Let the early warning begin or end, beside the faults found so far."""
        before = self._warnings.active
        warned = self._warnings.see(step, reading)
        if before and not self._warnings.active:
            self._candidates.drop(_K.DIVERGENCE)
        return self._add_warning(warned) if warned else []

    def _add_warning(self, warned: DivergenceWarning) -> list[Fault]:
        return self._candidates.add(self._warning_fault(warned), self._warning_certainty)

    def _warning_fault(self, warned: DivergenceWarning) -> Fault:
        fault = self._builder.build_from_numbers(_K.DIVERGENCE, onset=warned.onset, note=warned.description)
        return replace(fault, shape=warned.shape)

    def _take_held_out(self, loss: float) -> list[Fault]:
        """List a held-out loss that is not finite; it is a fault to act on only where no training loss is known."""
        bad, was_bad = not math.isfinite(loss), self._held_out_bad
        self._held_out_bad = bad
        if not bad or was_bad or _K.NAN_LOSS in self._candidates:
            return []
        fault = self._builder.build(_K.NAN_LOSS)
        return [fault] if self._losses.ever_good else self._candidates.add(fault, Certainty.PENDING)

    def _add_nan(self) -> list[Fault]:
        certainty = Certainty.DECISIVE if self._losses.confirmed else Certainty.PENDING
        return self._candidates.add(self._builder.build(_K.NAN_LOSS, note=self._losses.note), certainty)

    def _update_nan(self) -> None:
        """Let the latest loss confirm or clear a NaN that is open."""
        found = self._candidates.get(_K.NAN_LOSS)
        if found and _K.SCALE_COLLAPSE in self._candidates and self._losses.untouched:
            return  # the collapse is the fault to cure, and this NaN is its effect
        if found and self._losses.confirmed:
            found.certainty = min(found.certainty, Certainty.DECISIVE)
        elif found and found.certainty > Certainty.DECISIVE and not self._losses.pending and self._losses.ever_good:
            self._candidates.drop(_K.NAN_LOSS)

    def confirm_by_assertion(self) -> None:
        """Let an assertion of a kernel confirm a NaN just before it: a number that is not finite has no class."""
        found = self._candidates.get(_K.NAN_LOSS)
        if found and self._losses.pending:
            found.certainty = min(found.certainty, Certainty.AT_END)

    def _take_gradients(self, reading: Reading) -> list[Fault]:
        """Take a norm that may be bad, or one after bad ones."""
        if reading.grad_norm is None and not self._gradients.pending:
            return []
        began = self._gradients.see(reading)
        return self._update_gradients(began=began) if began or self._bad_gradient is not None else []

    def _update_gradients(self, *, began: bool) -> list[Fault]:
        """Let the latest gradient norm open or confirm a fault of the gradients."""
        if began:
            self._bad_gradient = self._builder.build(_K.GRAD_NONFINITE)
        if self._bad_gradient is not None and self._gradients.confirmed:
            return self._candidates.add(self._bad_gradient, Certainty.DECISIVE)
        return []

    def _add_scale(self, kind: FaultKind) -> list[Fault]:
        return self._candidates.add(self._builder.build(kind, onset=self._scales.low_since), Certainty.DECISIVE)
