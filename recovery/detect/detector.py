"""Reads a log line by line and finds faults and progress, in bounded memory.

What to do about a fault is decided in recovery/decide. Only the caller knows whether the job has ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.spec.recovery_spec import EarlyWarning, Rule, RuleAction
from rung.recovery.detect.alike_lines import AlikeLines, give_each
from rung.recovery.detect.candidates import Certainty, FaultCandidates
from rung.recovery.detect.fault_builder import FaultBuilder
from rung.recovery.detect.last_exception import LastException
from rung.recovery.detect.log_tail import Tail
from rung.recovery.detect.messages import Followed, Messages
from rung.recovery.detect.numeric_faults import NumericFaults
from rung.recovery.logs.line_reader import MARK, LineReader
from rung.recovery.logs.lines import Line
from rung.recovery.logs.progress import Progress, ProgressTracker
from rung.recovery.logs.reading import Reading, Readings
from rung.recovery.logs.step_count import EpochsBeginAgain
from rung.recovery.logs.unwrap import Unwrapper
from rung.recovery.monitors.fault_groups import HAS_ONSET
from rung.recovery.monitors.learning import LossHistory
from rung.recovery.monitors.loss_scale import read_backoff
from rung.recovery.shapes.recall import KnownLines
from rung.recovery.signatures.search import says_divergence
from rung.recovery.signatures.user_rules import Rules
from rung.recovery.unread.numbers import UnreadNumbers

EARLY_WARNING = EarlyWarning()
# Losses in a row that are not finite, with hands inside the job and no word from them: its replay waits for fewer.
AWAITED = 8
_K = FaultKind


class Detector:
    """Follows one attempt's log and knows, at any line, the fault to act on and the progress.

    `on_numbers` is given every reading of the training with its step, and `on_readings` many in a row at once.
    """

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        warning: EarlyWarning | None = EARLY_WARNING,
        killed: FaultKind = _K.OOM,
        warns_after: int = 0,
        on_numbers: Callable[[int, Reading], None] | None = None,
        on_readings: Callable[[Readings], None] | None = None,
    ) -> None:
        self._on_numbers = on_numbers
        self._on_readings = on_readings or (give_each(on_numbers) if on_numbers is not None else None)
        self._rules, self._warning = Rules(rules), warning
        self._progress = ProgressTracker()
        self._candidates = FaultCandidates()
        self._builder = FaultBuilder()
        self._numbers = NumericFaults(warning, self._candidates, self._builder, warns_after)
        self._unwrapper = Unwrapper()
        self._known = KnownLines()
        self._read_alone = self._known.read
        self._reader = LineReader(self._read_alone)
        self._epochs = EpochsBeginAgain()
        self._unread = UnreadNumbers()
        self._tail = Tail()
        self._last_exception = LastException()
        log = Followed(
            *(self._candidates, self._builder, self._numbers, self._progress, self._tail, self._last_exception)
        )
        self._messages = Messages(log, killed)
        self._alike = AlikeLines(log, self._known, self._reader, self._unread, self._on_readings)

    def outside(self) -> dict[str, object]:
        """Return what is no part of the state of reading, by name: settings, who takes the numbers, known shapes."""
        settings = {"rules": self._rules, "warning": self._warning}
        known = {"known": self._known, "read_alone": self._read_alone}
        return {**settings, **known, "on_numbers": self._on_numbers, "on_readings": self._on_readings}

    @property
    def alike(self) -> AlikeLines:
        """Return what takes lines that are alike, while none must be fed whole."""
        return self._alike

    @property
    def history(self) -> LossHistory:
        return self._numbers.history

    @property
    def finite_losses(self) -> int:
        """Return how many finite losses were read, with and without a step."""
        return self._numbers.history.count + self._numbers.losses_without_step

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
                self._last_exception.begin(self._tail.before())
            return []
        if self._last_exception.fault is not None:
            self._last_exception.follow(text)
        is_ours = MARK in text
        rule = None if is_ours else self._rules.match(text)
        if rule is not None and rule.action is RuleAction.IGNORE:
            return self._take_step_only(text)
        reading = self._unread.add_to(self._reader.read(text), text)
        lower = text.lower()
        event = None if is_ours or rule else read_backoff(text, lower)
        # The message of a back-off, which may share its line with a bar, has the scale of before as its first number.
        if event and reading is not None:
            reading = reading._replace(scale=None)
        messages = self._messages
        found = [] if is_ours else messages.take_rule(rule) if rule else messages.take(text, lower, reading, event)
        if reading is None:
            return found + self._messages.take_quotation(text)
        if _K.DIVERGENCE in self._candidates and says_divergence(text, lower):  # a loss that it quotes is no progress
            reading = reading._replace(loss=None)
        return found + self._take_reading(reading)

    @property
    def candidates(self) -> FaultCandidates:
        return self._candidates

    @property
    def needs_full_line(self) -> bool:
        """Tell whether the next line must be fed whole, because of the lines before it or the rules of the job file."""
        return self._builder.traceback.is_open or self._unwrapper.in_frame or bool(self._rules)

    @property
    def awaits_more(self) -> bool:
        """Tell whether the next lines decide what the latest ones mean, so that none of them may be left out."""
        if self._builder.traceback.is_open or self._unwrapper.in_frame:
            return True
        return self._last_exception.fault is not None or self._numbers.is_open

    def matches_rule(self, text: str) -> bool:
        """Tell whether a rule of the job file is about a line."""
        return self._rules.match(text) is not None

    @property
    def has_rules(self) -> bool:
        return bool(self._rules)

    def lines_missing(self) -> None:
        """Take note that lines are left out here: what must come in a row, or right after another line, begins anew."""
        self._unwrapper = Unwrapper()
        self._builder.traceback.lines_missing()
        self._last_exception.lines_missing()
        self._unread.lines_missing()
        self._numbers.lines_missing()

    def feed_numbers(self, line: Line) -> list[Fault]:
        """Take the numbers of a line without any known message; return the faults to list now."""
        self._builder.line, text = line, line.text
        self._tail.remember(line)
        if self._last_exception.fault is not None:
            self._last_exception.follow(text)
        reading = self._unread.add_to(self._reader.read(text), text)
        return self._messages.take_quotation(text) if reading is None else self._take_reading(reading)

    def finish(self) -> list[Fault]:
        """Return the faults that only the end of the log decides."""
        whole = self._candidates_at_end()
        new = [found for found in whole if not found.listed and found.certainty < Certainty.CASCADE]
        return sorted([found.fault for found in new] or whole.at_end(), key=lambda fault: fault.line or 0)

    def first_fault(self, *, ended: bool, clean_exit: bool = False) -> Fault | None:
        """Return the fault to act on now: the first cause, never what followed from it.

        After a clean exit, only a cause counts, and a loss that is not finite.
        """
        if not ended and self._awaits_replay():
            return None
        whole = self._candidates_at_end() if ended else self._candidates
        return whole.first(ended=ended, weakest=Certainty.PENDING if clean_exit else Certainty.QUOTED)

    def _awaits_replay(self) -> bool:
        """Return whether the job will soon say why its loss is not finite.

        A script that leaves out each of its batches makes no update and no record. After a few of them the code inside
        the job runs the step again; acting before that would take FP32 where one place needs it.
        """
        fault = self._candidates.first(ended=False)
        if fault is None or fault.kind is not _K.NAN_LOSS or fault.replay or self._progress.has_records:
            return False
        return self._progress.reports_its_end and self._numbers.all_bad and self._numbers.bad_in_a_row < AWAITED

    def ending_exception(self) -> Fault | None:
        """Return the exception in the log that ended the training, however the script exits."""
        return self._last_exception.ended_training

    # Messages.

    def _take_step_only(self, text: str) -> list[Fault]:
        """Take only the step of a line that a rule of the job file says to ignore."""
        reading = self._reader.read(text)
        if reading is not None and not self._progress.has_records:
            self._builder.step = self._progress.advance(reading._replace(loss=None, step_is_late=False))
        return []

    # Numbers.

    def _take_reading(self, reading: Reading) -> list[Fault]:
        if reading.total is not None or self._last_exception.fault is not None:
            self._last_exception.see(reading)
        progress = self._progress
        progress.store(reading)
        if reading.is_record:
            if reading.course is not None:
                self._numbers.begin_course()
            if reading.replay:
                self._builder.see_replay(reading.replay)
                self._candidates.attach_replay(HAS_ONSET, reading.replay)
                return []
        elif progress.has_records:
            return self._take_printed_loss(reading)
        elif reading.step is None and reading.loss is not None and self._epochs.begin_again(self._builder.line.text):
            self._numbers.begin_course()
        self._builder.step = step = progress.advance(reading)
        if progress.redrawn:
            return []
        self._builder.number_line = self._builder.line
        if self._on_numbers is not None and step is not None:
            self._on_numbers(step, reading)
        found = self._numbers.take(step, reading)
        if self._tail.unknown_exception and reading.loss is not None:
            self._tail.see_loss(step, healthy=self._numbers.is_healthy)
        return found

    def _take_printed_loss(self, reading: Reading) -> list[Fault]:
        """Take a loss that the script prints beside its records, as words: it may leave out the batches it is about."""
        bad = reading.loss is not None and not math.isfinite(reading.loss)
        return self._numbers.say(_K.NAN_LOSS, about_one_batch=True) if bad else []

    # Candidates.

    def _candidates_at_end(self) -> FaultCandidates:
        """Return the candidates with those that only the end of the log decides."""
        whole = self._candidates.copy()
        if cause := self._last_exception.cause:
            whole.record(cause, Certainty.AT_END).listed = True
        self._numbers.record_at_end(whole)
        kind = self._unread.shown_at_end
        if kind is not None and _K.NAN_LOSS not in whole and _K.DIVERGENCE not in whole:
            whole.record(self._builder.build(kind), Certainty.AT_END if kind is _K.DIVERGENCE else Certainty.PENDING)
        if (cut_frame := self._builder.traceback.cut_frame) and cut_frame.fault is not None:
            whole.record(self._builder.build(cut_frame.fault), Certainty.CASCADE)
        return whole
