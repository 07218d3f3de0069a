"""Owns the detector: line by line, what happened to a job and how far it is. All of it is bounded in memory.

It only says what it sees. What to do about a fault is in decide.py; whether the job has ended, only the caller knows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.spec.recovery_spec import EarlyWarning, Rule, RuleAction
from rung.recovery.detect.candidates import Certainty, FaultCandidates
from rung.recovery.detect.log_tail import MAX_EVIDENCE, Tail, Traceback
from rung.recovery.logs.free_text import read_free_text
from rung.recovery.logs.line_reader import MARK, LineReader
from rung.recovery.logs.lines import Line, RawLine
from rung.recovery.logs.progress import Progress, ProgressTracker
from rung.recovery.logs.reading import Reading
from rung.recovery.logs.unwrap import Unwrapper
from rung.recovery.monitors.blow_up import BlowUp, BlowUpMonitor
from rung.recovery.monitors.divergence import DivergenceMonitor
from rung.recovery.monitors.grad_finite import GradientMonitor
from rung.recovery.monitors.learning import LossHistory
from rung.recovery.monitors.loss_finite import LossMonitor
from rung.recovery.monitors.loss_scale import LossScaleMonitor, read_backoff
from rung.recovery.monitors.onset import OnsetTracker
from rung.recovery.signatures import Role
from rung.recovery.signatures.quoted_text import without_comment
from rung.recovery.signatures.search import Match, is_first_hand, search
from rung.recovery.signatures.user_rules import Rules, named_fault

EARLY_WARNING = EarlyWarning()

_K = FaultKind
# Faults whose numbers before them tell which checkpoint is still good.
_NUMERIC = frozenset(
    {_K.NAN_LOSS, _K.GRAD_NONFINITE, _K.FP16_OVERFLOW, _K.SCALE_COLLAPSE, _K.SCALE_THRASH, _K.DIVERGENCE}
)
_BAD_VALUE = frozenset({_K.NAN_LOSS, _K.GRAD_NONFINITE})
# A loss that is finite again proves nothing about the scale: it is finite all the time while the scale collapses.
_SCALE = frozenset({_K.SCALE_COLLAPSE, _K.SCALE_THRASH})


class Detector:
    """Follows one attempt's log and knows, at any line, the fault to act on and the progress made."""

    def __init__(self, rules: Sequence[Rule] = (), warning: EarlyWarning | None = EARLY_WARNING) -> None:
        self.history = LossHistory()
        self._rules = Rules(rules)
        self._track = ProgressTracker()
        self._losses = LossMonitor()
        self._gradients = GradientMonitor()
        self._scales = LossScaleMonitor()
        self._run_up = OnsetTracker()
        self._divergence = DivergenceMonitor(warning) if warning else None
        self._soar = BlowUpMonitor() if warning else None
        self._warning_weight = Certainty.DECISIVE if warning and warning.stop else Certainty.AT_END
        self._findings = FaultCandidates()
        self._held_out_bad = False
        self._traceback = Traceback()
        self._unwrapper = Unwrapper()
        self.reader = LineReader()
        self._bad_gradient: Fault | None = None  # since when the gradients are bad
        self._replay: Mapping[str, str] = {}  # what the job told of the step that failed
        self._seen: Line | RawLine = Line(0, "")
        self._tail = Tail()

    @property
    def progress(self) -> Progress:
        return self._track.snapshot()

    @property
    def tail(self) -> list[str]:
        """Return the last lines, for an exit that nobody can explain."""
        return self._tail.lines()

    def feed(self, line: Line) -> list[Fault]:
        """Take one line; return the findings that it brings."""
        text = self._unwrapper.mend(line.text)
        self._seen = line if text is line.text else Line(line.number, text)
        self._tail.remember(self._seen)
        if self._traceback.holds(text):
            return []
        is_ours = MARK in text
        rule = None if is_ours else self._rules.match(text)
        if rule is not None and rule.action is RuleAction.IGNORE:
            return self._pass_by(text)
        reading = self.reader.read(text)
        found = [] if is_ours else self._add_rule(rule) if rule else self._search(text, reading)
        if reading is None:
            return found + self._quoted_loss(text)
        return found + self._take(reading)

    @property
    def wants_all(self) -> bool:
        """Tell whether the next line must be fed whole, because of the lines before it or a person's own rules."""
        return self._traceback.is_open or self._unwrapper.in_frame or bool(self._rules)

    def take(self, line: RawLine, reading: Reading | None) -> list[Fault]:
        """Take the numbers of a line that holds none of the words we know; return the findings that they bring."""
        self._seen = line
        self._tail.remember(line)
        if reading is not None:
            return self._take(reading)
        return self._quoted_loss(line.text) if b"#" in line.raw else []

    def finish(self) -> list[Fault]:
        """Return the findings that only the end of the log decides."""
        whole = self._with_late()
        new = [found for found in whole if not found.listed and found.weight < Certainty.CASCADE]
        return sorted([found.fault for found in new] or whole.at_end(), key=lambda fault: fault.line or 0)

    def finding(self, *, ended: bool, well: bool = False) -> Fault | None:
        """Return the fault to act on now: the first cause, never what followed from it.

        After an end that looks well, only a cause counts, and a loss that is not finite.
        """
        whole = self._with_late() if ended else self._findings
        return whole.first(ended=ended, weakest=Certainty.PENDING if well else Certainty.QUOTED)

    # What the words say.

    def _add_rule(self, rule: Rule) -> list[Fault]:
        return self._add(named_fault(rule), Certainty.RULE, note=f"the job's own rule {rule.name!r}")

    def _pass_by(self, text: str) -> list[Fault]:
        """Take only the step of a line that a rule says is never a fault."""
        reading = self.reader.read(text)
        if reading is not None and not self._track.has_records:
            self._track.advance(reading._replace(loss=None, lags=False))
        return []

    def _search(self, text: str, reading: Reading | None) -> list[Fault]:
        lower = text.lower()
        event = read_backoff(text, lower)
        if event:
            self._gradients.back_off()
            if kind := self._scales.back_off(self._track.step, event):
                return self._add(kind, Certainty.DECISIVE, onset=self._scales.low_since)
        match = search(text, lower)
        if match:
            return self._take_match(match, reading)
        if not self._tail.stranger and is_first_hand(text):
            self._tail.stranger = text[:MAX_EVIDENCE].rstrip()
        return []

    def _take_match(self, match: Match, reading: Reading | None) -> list[Fault]:
        row = match.signature
        assert row.fault is not None, "guards are no matches"
        # After an exception of its own that nobody knows, a run's end has its cause there.
        if (row.role is Role.CASCADE or match.quoted) and self._tail.stranger:
            return []
        if match.quoted:
            return self._add(row.fault, Certainty.QUOTED, start=match.start)
        if row.window is not None and not match.raised:
            return [] if _tells_itself(reading) else self._take_hint(row.fault)
        if row.role is Role.CASCADE:
            return self._add(row.fault, Certainty.CASCADE, start=match.start)
        # A full disk may be the trouble of a logging thread alone: it counts when the job has ended.
        now = row.role is Role.ROOT and match.raised and row.fault is not _K.INFRA_FAULT
        return self._add(row.fault, Certainty.DECISIVE if now else Certainty.AT_END, start=match.start)

    def _take_hint(self, kind: FaultKind) -> list[Fault]:
        """Take one bad batch that was told in words; it counts like one bad number."""
        if kind is _K.GRAD_NONFINITE:
            return self._weigh_gradients(began=self._gradients.hint())
        began = self._losses.hint()
        self._weigh_nan()
        return self._add_nan() if began else []

    def _quoted_loss(self, text: str) -> list[Fault]:
        """List a bad loss that a comment quotes (`# output: loss: nan`), when there is nothing else."""
        told = without_comment(text) if "loss" in text and "#" in text else None
        reading = read_free_text(told) if told else None
        if reading is None or reading.loss is None or math.isfinite(reading.loss) or self._tail.stranger:
            return []
        return self._add(_K.NAN_LOSS, Certainty.QUOTED)

    # What the numbers say.

    def _take(self, reading: Reading) -> list[Fault]:
        self._track.store(reading)
        if self._track.has_records and not reading.is_record:
            return []
        if reading.replay:
            self._replay = reading.replay
            self._findings.explain(_NUMERIC, reading.replay)
            return []
        step = self._track.advance(reading)
        if self._track.redrawn:
            return []
        found: list[Fault] = []
        if reading.loss is not None:
            found += self._take_loss(step, reading)
        if reading.grad_norm is not None:
            found += self._weigh_gradients(began=self._gradients.see(reading))
        if reading.scale is not None or reading.skipped:
            kind = self._scales.report(step, reading.scale, reading.skipped)
            found += self._add(kind, Certainty.DECISIVE, onset=self._scales.low_since) if kind else []
        if self._divergence is not None:
            found += self._take_warning(self._divergence, step, reading)
        if reading.held_out_loss is not None:
            found += self._take_held_out(reading.held_out_loss)
        return found

    def _take_loss(self, step: int | None, reading: Reading) -> list[Fault]:
        began = self._losses.see(reading)
        self._run_up.add(step, reading.loss, reading.grad_norm, reading.lr)
        if self._losses.healthy:
            self._tail.stranger = ""
            # The run got past that step; only what was told of gradients holds beside a finite loss.
            self._replay = self._replay if "grads" in self._replay else {}
        if self._findings:
            self._weigh_nan()
            if self._losses.healthy:
                # Whatever it was, the run got past it; but gradients can be bad beside losses that look fine.
                self._findings.keep(self._unhealed())
        if began:
            return self._add_nan()
        if step is not None and reading.loss is not None and not self._losses.pending:
            self.history.add(step, reading.loss)
        ruined = self._soar and reading.loss is not None and self._soar.see(step, reading.loss_name, reading.loss)
        return self._findings.add(self._soared(ruined), self._warning_weight) if ruined else []

    def _soared(self, course: BlowUp) -> Fault:
        """Return the fault of a run whose loss has soared: by its learning rate, unless it got there in one step."""
        shape = "spike" if course.jumped else "drift"
        return replace(self._fault(_K.DIVERGENCE, onset=course.onset, note=course.description), shape=shape)

    def _unhealed(self) -> set[FaultKind]:
        """Return the faults that a finite loss does not disprove."""
        gradients = {_K.GRAD_NONFINITE} if self._gradients.pending else set()
        course = {_K.DIVERGENCE} if any(watch and watch.active for watch in (self._divergence, self._soar)) else set()
        return {*_SCALE, *gradients, *course}

    def _take_warning(self, watch: DivergenceMonitor, step: int | None, reading: Reading) -> list[Fault]:
        """Let the early warning begin or end an incident of its own."""
        before, warned = watch.active, watch.see(step, reading)
        if before and not watch.active and not (self._soar and self._soar.active):
            self._findings.drop(_K.DIVERGENCE)
        if warned is None:
            return []
        fault = self._fault(_K.DIVERGENCE, onset=warned.onset, note=warned.description)
        return self._findings.add(replace(fault, shape=warned.shape), self._warning_weight)

    def _take_held_out(self, loss: float) -> list[Fault]:
        """List a held-out loss that is not finite; it is a fault to act on only where no training loss is known."""
        bad, was_bad = not math.isfinite(loss), self._held_out_bad
        self._held_out_bad = bad
        if not bad or was_bad or _K.NAN_LOSS in self._findings:
            return []
        if self._losses.ever_good:
            return [self._fault(_K.NAN_LOSS)]
        return self._add(_K.NAN_LOSS, Certainty.PENDING)

    # Findings.

    def _add_nan(self) -> list[Fault]:
        weight = Certainty.DECISIVE if self._losses.confirmed else Certainty.PENDING
        return self._add(_K.NAN_LOSS, weight, note=self._losses.note)

    def _weigh_nan(self) -> None:
        """Let the latest loss confirm or clear a NaN that is open."""
        found = self._findings.get(_K.NAN_LOSS)
        if found and _K.SCALE_COLLAPSE in self._findings and self._losses.untouched:
            return  # the collapse is the fault to cure; this is how it looks from the loss
        if found and self._losses.confirmed:
            found.weight = min(found.weight, Certainty.DECISIVE)
        elif found and found.weight > Certainty.DECISIVE and not self._losses.pending:
            self._findings.drop(_K.NAN_LOSS)

    def _weigh_gradients(self, *, began: bool) -> list[Fault]:
        """Let the latest gradient norm begin, confirm or clear an incident of the gradients."""
        if began:
            self._bad_gradient = self._fault(_K.GRAD_NONFINITE)
        if self._bad_gradient is not None and self._gradients.confirmed:
            return self._findings.add(self._bad_gradient, Certainty.DECISIVE)
        return []

    def _add(
        self, kind: FaultKind, weight: Certainty, *, start: int = 0, onset: int | None = None, note: str = ""
    ) -> list[Fault]:
        """Open a finding of this kind, or strengthen the one that is open; return it when it is to be listed."""
        return self._findings.add(self._fault(kind, start, onset, note), weight)

    def _fault(self, kind: FaultKind, start: int = 0, onset: int | None = None, note: str = "") -> Fault:
        line, step, shape = self._seen, self._track.step, None
        if kind in _NUMERIC:
            traced, shape = self._run_up.locate(step, is_bad_value=kind in _BAD_VALUE)
            onset = min((each for each in (onset, traced) if each is not None), default=None)
        # A message far out in a long line is shown with a little of what stands before it.
        text = line.text if start <= MAX_EVIDENCE // 2 else line.text[start - MAX_EVIDENCE // 5 :]
        replay = self._replay if kind in _NUMERIC else {}
        shown, source = text[:MAX_EVIDENCE].rstrip(), self._traceback.source
        norm = self._run_up.first_norm if kind in _NUMERIC else None
        return Fault(kind, shown, line.number, step, onset, shape, note, replay, source, norm)

    def _with_late(self) -> FaultCandidates:
        """Return the findings with those that only the end of the log decides."""
        whole = self._findings.copy()
        if self._scales.is_low and _K.SCALE_COLLAPSE not in whole:
            whole.hold(self._fault(_K.SCALE_COLLAPSE, onset=self._scales.low_since), Certainty.AT_END)
        if self._soar and _K.DIVERGENCE not in whole and not self._losses.pending and (high := self._soar.at_end()):
            whole.hold(self._soared(high), Certainty.AT_END)
        # A loss of NaN tells the same; where the log hides it, the gradients are what can be seen of it.
        shows_nan = _K.NAN_LOSS in whole and not self._losses.note
        if self._bad_gradient and self._gradients.pending and not shows_nan:
            whole.hold(self._bad_gradient, Certainty.UNSURE)
        if self._traceback.cut is not None and self._traceback.cut.fault is not None:
            whole.hold(self._fault(self._traceback.cut.fault), Certainty.CASCADE)
        return whole


def _tells_itself(reading: Reading | None) -> bool:
    """Tell whether a line's own numbers are the bad ones: then its words are no second batch."""
    values = (reading.loss, reading.grad_norm) if reading else ()
    return any(value is not None and not math.isfinite(value) for value in values)
