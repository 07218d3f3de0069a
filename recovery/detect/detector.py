"""Reads a log line by line and finds faults and progress, in bounded memory.

What to do about a fault is decided in recovery/decide. Only the caller knows whether the job has ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.spec.recovery_spec import EarlyWarning, Rule, RuleAction
from rung.recovery.detect.candidates import Certainty, FaultCandidates, certainty_of
from rung.recovery.detect.fault_builder import FaultBuilder
from rung.recovery.detect.last_exception import LastException, is_exception
from rung.recovery.detect.log_tail import MAX_EVIDENCE, Tail
from rung.recovery.detect.quoted_loss import quotes_bad_loss
from rung.recovery.logs.line_reader import MARK, LineReader
from rung.recovery.logs.lines import Line
from rung.recovery.logs.progress import Progress, ProgressTracker
from rung.recovery.logs.reading import Reading
from rung.recovery.logs.unwrap import Unwrapper
from rung.recovery.monitors.divergence import DivergenceWarning
from rung.recovery.monitors.early_warning import EarlyWarningMonitor
from rung.recovery.monitors.fault_groups import BAD_SCALE, HAS_ONSET
from rung.recovery.monitors.grad_finite import GradientMonitor
from rung.recovery.monitors.learning import LossHistory
from rung.recovery.monitors.loss_finite import LossMonitor
from rung.recovery.monitors.loss_scale import LossScaleMonitor, read_backoff
from rung.recovery.signatures import Role
from rung.recovery.signatures.memory import KILLED
from rung.recovery.signatures.search import Match, is_first_hand, search
from rung.recovery.signatures.user_rules import Rules, named_fault

EARLY_WARNING = EarlyWarning()

_K = FaultKind


class Detector:
    """Follows one attempt's log and knows, at any line, the fault to act on and the progress."""

    def __init__(
        self, rules: Sequence[Rule] = (), warning: EarlyWarning | None = EARLY_WARNING, killed: FaultKind = _K.OOM
    ) -> None:
        self._killed = killed  # what a line means that only says that a process was killed
        self.history = LossHistory()
        self._rules = Rules(rules)
        self._progress = ProgressTracker()
        self._losses = LossMonitor()
        self._gradients = GradientMonitor()
        self._scales = LossScaleMonitor()
        self._warnings = EarlyWarningMonitor(warning)
        self._warning_certainty = Certainty.DECISIVE if warning and warning.stop else Certainty.AT_END
        self._candidates = FaultCandidates()
        self._held_out_bad = False
        self._builder = FaultBuilder()
        self._unwrapper = Unwrapper()
        self._reader = LineReader()
        self._bad_gradient: Fault | None = None  # since when the gradients are bad
        self._tail = Tail()
        self._last_exception = LastException()

    @property
    def progress(self) -> Progress:
        return self._progress.snapshot()

    @property
    def tail(self) -> list[str]:
        """Return the last lines, for an exit without a known fault."""
        return self._tail.lines()

    def feed(self, line: Line) -> list[Fault]:
        """Take one line; return the faults to list now."""
        text = self._unwrapper.join_wrapped(line.text)
        self._builder.line = line = line if text is line.text else Line(line.number, text)
        self._tail.remember(line)
        if self._builder.traceback.contains(text):
            if self._builder.traceback.begins:
                self._last_exception.open(self._tail.before())
            return []
        self._last_exception.follow(text)
        is_ours = MARK in text
        rule = None if is_ours else self._rules.match(text)
        if rule is not None and rule.action is RuleAction.IGNORE:
            return self._take_step_only(text)
        reading = self._reader.read(text)
        found = [] if is_ours else self._add_rule(rule) if rule else self._search(text, reading)
        if reading is None:
            return found + self._quoted_loss(text)
        return found + self._take_reading(reading)

    @property
    def needs_full_line(self) -> bool:
        """Tell whether the next line must be fed whole, because of the lines before it or the rules of the job file."""
        return self._builder.traceback.is_open or self._unwrapper.in_frame or bool(self._rules)

    def feed_numbers(self, line: Line) -> list[Fault]:
        """Take the numbers of a line without any known message; return the faults to list now."""
        self._builder.line = line
        self._tail.remember(line)
        self._last_exception.follow(line.text)
        reading = self._reader.read(line.text)
        return self._quoted_loss(line.text) if reading is None else self._take_reading(reading)

    def finish(self) -> list[Fault]:
        """Return the faults that only the end of the log decides."""
        whole = self._candidates_at_end()
        new = [found for found in whole if not found.listed and found.certainty < Certainty.CASCADE]
        return sorted([found.fault for found in new] or whole.at_end(), key=lambda fault: fault.line or 0)

    def first_fault(self, *, ended: bool, clean_exit: bool = False) -> Fault | None:
        """Return the fault to act on now: the first cause, never what followed from it.

        After a clean exit, only a cause counts, and a loss that is not finite.
        """
        whole = self._candidates_at_end() if ended else self._candidates
        return whole.first(ended=ended, weakest=Certainty.PENDING if clean_exit else Certainty.QUOTED)

    def ending_exception(self) -> Fault | None:
        """Return the exception in the log that ended the training, however the script exits."""
        return self._last_exception.ended_training

    # Messages.

    def _add_rule(self, rule: Rule) -> list[Fault]:
        return self._add(named_fault(rule), Certainty.RULE, note=f"the job's own rule {rule.name!r}")

    def _take_step_only(self, text: str) -> list[Fault]:
        """Take only the step of a line that a rule of the job file says to ignore."""
        reading = self._reader.read(text)
        if reading is not None and not self._progress.has_records:
            self._progress.advance(reading._replace(loss=None, step_is_late=False))
        return []

    def _search(self, text: str, reading: Reading | None) -> list[Fault]:
        lower = text.lower()
        event = read_backoff(text, lower)
        if event:
            self._gradients.back_off()
            if kind := self._scales.back_off(self._progress.step, event):
                return self._add(kind, Certainty.DECISIVE, onset=self._scales.low_since)
        match = search(text, lower)
        found = self._take_match(match, reading) if match else []
        if self._builder.traceback.ends and is_exception(text):
            self._last_exception.close(self._exception_fault(match))
        if not match and not self._tail.unknown_exception and is_first_hand(text):
            self._tail.unknown_exception = text[:MAX_EVIDENCE].rstrip()
        return found

    def _exception_fault(self, match: Match | None) -> Fault:
        """Return the fault of an exception; one that is open already stays the first of its kind."""
        kind = match.signature.fault if match else None
        known = self._candidates.get(kind) if kind else None
        return known.fault if known else self._fault(kind or _K.UNKNOWN_EXIT)

    def _take_match(self, match: Match, reading: Reading | None) -> list[Fault]:
        row = match.signature
        assert row.fault is not None, "guards are no matches"
        # An unknown exception before is the cause of the end; this line only follows from it.
        if (row.role is Role.CASCADE or match.quoted) and self._tail.unknown_exception:
            return []
        if row.window is not None and not match.raised and not match.quoted:
            # Where the numbers of the line are bad too, the message is about the same batch.
            return [] if reading is not None and reading.has_bad_number else self._take_hint(row.fault)
        kind = self._killed if row.name == KILLED else row.fault
        return self._add(kind, certainty_of(match), start=match.start)

    def _take_hint(self, kind: FaultKind) -> list[Fault]:
        """Take a message about one bad batch; it counts like one bad number."""
        if kind is _K.GRAD_NONFINITE:
            return self._update_gradients(began=self._gradients.hint())
        began = self._losses.hint()
        self._update_nan()
        return self._add_nan() if began else []

    def _quoted_loss(self, text: str) -> list[Fault]:
        """List a bad loss that a comment quotes, when there is nothing else."""
        alone = not self._tail.unknown_exception and quotes_bad_loss(text)
        return self._add(_K.NAN_LOSS, Certainty.QUOTED) if alone else []

    # Numbers.

    def _take_reading(self, reading: Reading) -> list[Fault]:
        self._last_exception.see(reading)
        self._progress.store(reading)
        if self._progress.has_records and not reading.is_record:
            return []
        if reading.replay:
            self._builder.replay = reading.replay
            self._candidates.attach_replay(HAS_ONSET, reading.replay)
            return []
        step = self._progress.advance(reading)
        if self._progress.redrawn:
            return []
        found: list[Fault] = []
        if reading.loss is not None:
            found += self._take_loss(step, reading)
        if reading.grad_norm is not None:
            found += self._update_gradients(began=self._gradients.see(reading))
        if reading.scale is not None or reading.skipped:
            kind = self._scales.report(step, reading.scale, reading.skipped)
            found += self._add(kind, Certainty.DECISIVE, onset=self._scales.low_since) if kind else []
        found += self._take_warning(step, reading)
        if reading.held_out_loss is not None:
            found += self._take_held_out(reading.held_out_loss)
        return found

    def _take_loss(self, step: int | None, reading: Reading) -> list[Fault]:
        began = self._losses.see(reading)
        self._builder.onset.add(step, reading.loss, reading.grad_norm, reading.lr)
        if self._losses.healthy:
            self._tail.unknown_exception = ""
            # The run got past that step; only a replay of bad gradients still counts beside a finite loss.
            if "grads" not in self._builder.replay:
                self._builder.replay = {}
        if self._candidates:
            self._update_nan()
            if self._losses.healthy:
                # The run got past it; but gradients can be bad beside losses that look fine.
                self._candidates.keep_only(self._still_open())
        if began:
            return self._add_nan()
        if step is not None and reading.loss is not None and not self._losses.pending:
            self.history.add(step, reading.loss)
        return []

    def _warning_fault(self, warned: DivergenceWarning) -> Fault:
        fault = self._fault(_K.DIVERGENCE, onset=warned.onset, note=warned.description)
        return replace(fault, shape=warned.shape)

    def _still_open(self) -> set[FaultKind]:
        """Return the faults that a finite loss does not disprove."""
        kinds = {*BAD_SCALE}
        if self._gradients.pending:
            kinds.add(_K.GRAD_NONFINITE)
        if self._warnings.active:
            kinds.add(_K.DIVERGENCE)
        return kinds

    def _take_warning(self, step: int | None, reading: Reading) -> list[Fault]:
        """Let the early warning begin or end."""
        before, warned = self._warnings.active, self._warnings.see(step, reading)
        if before and not self._warnings.active:
            self._candidates.drop(_K.DIVERGENCE)
        return self._candidates.add(self._warning_fault(warned), self._warning_certainty) if warned else []

    def _take_held_out(self, loss: float) -> list[Fault]:
        """List a held-out loss that is not finite; it is a fault to act on only where no training loss is known."""
        bad, was_bad = not math.isfinite(loss), self._held_out_bad
        self._held_out_bad = bad
        if not bad or was_bad or _K.NAN_LOSS in self._candidates:
            return []
        if self._losses.ever_good:
            return [self._fault(_K.NAN_LOSS)]
        return self._add(_K.NAN_LOSS, Certainty.PENDING)

    # Candidates.

    def _add_nan(self) -> list[Fault]:
        certainty = Certainty.DECISIVE if self._losses.confirmed else Certainty.PENDING
        return self._add(_K.NAN_LOSS, certainty, note=self._losses.note)

    def _update_nan(self) -> None:
        """Let the latest loss confirm or clear a NaN that is open."""
        found = self._candidates.get(_K.NAN_LOSS)
        if found and _K.SCALE_COLLAPSE in self._candidates and self._losses.untouched:
            return  # the collapse is the fault to cure, and this NaN is its effect
        if found and self._losses.confirmed:
            found.certainty = min(found.certainty, Certainty.DECISIVE)
        elif found and found.certainty > Certainty.DECISIVE and not self._losses.pending:
            self._candidates.drop(_K.NAN_LOSS)

    def _update_gradients(self, *, began: bool) -> list[Fault]:
        """Let the latest gradient norm open or confirm a fault of the gradients."""
        if began:
            self._bad_gradient = self._fault(_K.GRAD_NONFINITE)
        if self._bad_gradient is not None and self._gradients.confirmed:
            return self._candidates.add(self._bad_gradient, Certainty.DECISIVE)
        return []

    def _add(
        self, kind: FaultKind, certainty: Certainty, *, start: int = 0, onset: int | None = None, note: str = ""
    ) -> list[Fault]:
        """Open a candidate of this kind or raise its certainty; return its fault when it is to be listed."""
        return self._candidates.add(self._fault(kind, start, onset, note), certainty)

    def _fault(self, kind: FaultKind, start: int = 0, onset: int | None = None, note: str = "") -> Fault:
        return self._builder.build(kind, self._progress.step, start, onset, note)

    def _candidates_at_end(self) -> FaultCandidates:
        """Return the candidates with those that only the end of the log decides."""
        whole = self._candidates.copy()
        if self._scales.is_low and _K.SCALE_COLLAPSE not in whole:
            whole.record(self._fault(_K.SCALE_COLLAPSE, onset=self._scales.low_since), Certainty.AT_END)
        warned = self._warnings.at_end()
        if warned and _K.DIVERGENCE not in whole and not self._losses.pending:
            whole.record(self._warning_fault(warned), Certainty.AT_END)
        if cause := self._last_exception.cause:
            whole.record(cause, Certainty.AT_END).listed = True
        # A loss of NaN shows the same; where the log hides it, only the gradients show it.
        shows_nan = _K.NAN_LOSS in whole and not self._losses.note
        if self._bad_gradient and self._gradients.pending and not shows_nan:
            whole.record(self._bad_gradient, Certainty.UNSURE)
        cut_frame = self._builder.traceback.cut_frame
        if cut_frame is not None and cut_frame.fault is not None:
            whole.record(self._fault(cut_frame.fault), Certainty.CASCADE)
        return whole
