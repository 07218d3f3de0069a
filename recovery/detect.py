"""Owns the detector: line by line, what happened to a job and how far it is. All of it is bounded in memory.

It only says what it sees. What to do about a fault is in decide.py; whether the job has ended, only the caller knows.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from jobs.fault import Fault, FaultKind
from jobs.spec import Rule, compile_rule
from recovery.learning import LossHistory
from recovery.lines import Line
from recovery.messages import Match, is_first_hand, is_shown_text, search
from recovery.metrics import MARK, read
from recovery.nonfinite import LossWatch
from recovery.progress import Progress, Track
from recovery.reading import Reading
from recovery.runup import RunUp
from recovery.scale import ScaleWatch, read_backoff
from recovery.signatures import Role
from recovery.wrapped import Unwrapper

MAX_EVIDENCE = 500
TAIL_LINES = 20
# A user's own pattern may be slow on long lines; no message worth a rule is longer than this.
MAX_RULE_TEXT = 4096

_K = FaultKind
# Faults whose numbers before them tell which checkpoint is still good.
_NUMERIC = frozenset({_K.NAN_LOSS, _K.FP16_OVERFLOW, _K.SCALE_COLLAPSE, _K.SCALE_THRASH, _K.DIVERGENCE})
# A loss that is finite again proves nothing about the scale: it is finite all the time while the scale collapses.
_SCALE = frozenset({_K.SCALE_COLLAPSE, _K.SCALE_THRASH})
_FRAME = re.compile(r'.{0,40}\bFile "[^"]{1,400}", line \d+')
_INDENTED = re.compile(r"(?:\[?rank ?\d{1,6}\]?:)? {2}", re.IGNORECASE)


class _Weight(IntEnum):
    DECISIVE = 0  # act on it now
    AT_END = 1  # it explains the end, if the job ends
    CASCADE = 2  # it explains the end when nothing else does


@dataclass
class _Found:
    fault: Fault
    weight: _Weight


def _precedence(found: _Found) -> tuple[int, bool, int]:
    """Order findings by how close to the cause they are: a rank that was killed comes before a link that broke."""
    is_echo = found.weight is _Weight.CASCADE and found.fault.kind is _K.COMM_FAULT
    return found.weight, is_echo, found.fault.line or 0


class Detector:
    """Follows one attempt's log and knows, at any line, the fault to act on and the progress made."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.history = LossHistory()
        self._rules = [(rule, compile_rule(rule.pattern)) for rule in rules]
        self._track = Track()
        self._losses = LossWatch()
        self._scales = ScaleWatch()
        self._run_up = RunUp()
        # At most one finding of a kind is open: an incident is told once, however many lines and ranks tell of it.
        self._open: dict[FaultKind, _Found] = {}
        self._held_out_bad = False
        self._below_frame = False
        self._unwrapper = Unwrapper()
        self._stranger = ""  # the first exception that nobody caught and no signature knows
        self._seen = Line(0, "")
        self._tail: deque[Line] = deque(maxlen=TAIL_LINES)

    @property
    def progress(self) -> Progress:
        return self._track.snapshot()

    @property
    def tail(self) -> list[str]:
        """Return the last lines for an exit nobody can explain; an exception comes last, what follows it says less."""
        lines = [line.text[:MAX_EVIDENCE] for line in self._tail]
        return [*lines[1:], self._stranger] if self._stranger and self._stranger != lines[-1] else lines

    def feed(self, line: Line) -> list[Fault]:
        """Take one line; return the findings that it brings."""
        text = self._unwrapper.mend(line.text)
        self._remember(line if text is line.text else Line(line.number, text))
        if self._is_source(text):
            return []
        found = [] if MARK in text else self._search(text)
        reading = read(text)
        return found + self._take(reading) if reading is not None else found

    def finish(self) -> list[Fault]:
        """Return the findings that only the end of the log decides."""
        if self._ends_low():
            return [self._low_scale()]
        if any(found.weight is not _Weight.CASCADE for found in self._open.values()):
            return []
        return [found.fault for found in self._open.values()]

    def finding(self, *, ended: bool) -> Fault | None:
        """Return the fault to act on now: the first cause, never what followed from it."""
        found = [each for each in self._open.values() if ended or each.weight is _Weight.DECISIVE]
        if ended and self._ends_low():
            found.append(_Found(self._low_scale(), _Weight.AT_END))
        return min(found, key=_precedence).fault if found else None

    def _remember(self, line: Line) -> None:
        self._seen = line
        # A progress bar redrawn on its line takes one place, as on a terminal.
        if self._tail and self._tail[-1].number == line.number:
            self._tail.pop()
        if line.text.strip():
            self._tail.append(line)

    def _is_source(self, text: str) -> bool:
        """Tell whether a line is a frame of a traceback, or the program's own text that is shown below one."""
        below, self._below_frame = self._below_frame, 'File "' in text and bool(_FRAME.match(text))
        return self._below_frame or (below and bool(_INDENTED.match(text)))

    # What the words say.

    def _search(self, text: str) -> list[Fault]:
        if self._rules and (kind := self._match_rules(text)):
            return self._add(kind, _Weight.DECISIVE)
        lower = text.lower()
        event = read_backoff(text, lower)
        if event and (kind := self._scales.back_off(self._track.step, event)):
            return self._add(kind, _Weight.DECISIVE, onset=self._scales.low_since)
        match = search(text, lower)
        if match:
            return self._take_match(match)
        if not self._stranger and is_first_hand(text):
            self._stranger = text[:MAX_EVIDENCE].rstrip()
        return []

    def _match_rules(self, text: str) -> FaultKind | None:
        text = text[:MAX_RULE_TEXT]
        for rule, pattern in self._rules:
            if pattern.search(text):
                # The job file echoed into the log must not set off its own rule.
                return None if is_shown_text(text) else rule.fault
        return None

    def _take_match(self, match: Match) -> list[Fault]:
        kind, role = match.signature.fault, match.signature.role
        if role is Role.HINT:
            began = self._losses.hint()
            self._weigh_nan()
            return self._add_nan() if began else []
        # After an exception of its own that nobody knows, a run's end has its cause there.
        if role is Role.CASCADE and self._stranger:
            return []
        weight = _Weight.CASCADE if role is Role.CASCADE else _Weight.AT_END
        # A full disk may be the trouble of a logging thread alone: it counts when the job has ended.
        if role is Role.ROOT and match.raised and kind is not _K.INFRA_FAULT:
            weight = _Weight.DECISIVE
        return self._add(kind, weight, start=match.start)

    # What the numbers say.

    def _take(self, reading: Reading) -> list[Fault]:
        self._track.store(reading)
        if self._track.has_records and not reading.is_record:
            return []
        step = self._track.advance(reading)
        found: list[Fault] = []
        if reading.loss is not None:
            found += self._take_loss(step, reading)
        if reading.scale is not None or reading.skipped:
            kind = self._scales.report(step, reading.scale, reading.skipped)
            found += self._add(kind, _Weight.DECISIVE, onset=self._scales.low_since) if kind else []
        if reading.held_out_loss is not None:
            found += self._take_held_out(reading.held_out_loss)
        return found

    def _take_loss(self, step: int | None, reading: Reading) -> list[Fault]:
        began = self._losses.see(reading)
        self._run_up.add(step, reading.loss, reading.grad_norm)
        if self._losses.healthy:
            self._stranger = ""
        if self._open:
            self._weigh_nan()
            if self._losses.healthy:
                # Whatever it was, the run got past it.
                self._open = {kind: found for kind, found in self._open.items() if kind in _SCALE}
        if began:
            return self._add_nan()
        if step is not None and reading.loss is not None and not self._losses.pending:
            self.history.add(step, reading.loss)
        return []

    def _take_held_out(self, loss: float) -> list[Fault]:
        """List a held-out loss that is not finite; it is a fault to act on only where no training loss is known."""
        bad, was_bad = not math.isfinite(loss), self._held_out_bad
        self._held_out_bad = bad
        if not bad or was_bad or _K.NAN_LOSS in self._open:
            return []
        if self._losses.ever_good:
            return [self._fault(_K.NAN_LOSS, 0, None)]
        return self._add(_K.NAN_LOSS, _Weight.AT_END)

    # Findings.

    def _add_nan(self) -> list[Fault]:
        return self._add(_K.NAN_LOSS, _Weight.DECISIVE if self._losses.confirmed else _Weight.AT_END)

    def _weigh_nan(self) -> None:
        """Let the latest loss confirm or clear a NaN that is open."""
        found = self._open.get(_K.NAN_LOSS)
        if found and _K.SCALE_COLLAPSE in self._open and self._losses.untouched:
            return  # the collapse is the fault to cure; this is how it looks from the loss
        if found and self._losses.confirmed:
            found.weight = _Weight.DECISIVE
        elif found and found.weight is _Weight.AT_END and not self._losses.pending:
            del self._open[_K.NAN_LOSS]

    def _add(self, kind: FaultKind, weight: _Weight, *, start: int = 0, onset: int | None = None) -> list[Fault]:
        """Open a finding of this kind, or strengthen the one that is open; return it when it is to be listed."""
        known = self._open.get(kind)
        if known and (known.weight is not _Weight.CASCADE or weight is _Weight.CASCADE):
            known.weight = min(known.weight, weight)
            return []
        fault = self._fault(kind, start, onset)
        self._open[kind] = _Found(fault, weight)
        # Whether a follow-up is all there is, only the end tells.
        return [] if weight is _Weight.CASCADE else [fault]

    def _fault(self, kind: FaultKind, start: int, onset: int | None) -> Fault:
        line, step, shape = self._seen, self._track.step, None
        if kind in _NUMERIC:
            traced, shape = self._run_up.trace(step, is_bad_value=kind is _K.NAN_LOSS)
            onset = min((each for each in (onset, traced) if each is not None), default=None)
        # A message far out in a long line is shown with a little of what stands before it.
        text = line.text if start <= MAX_EVIDENCE // 2 else line.text[start - MAX_EVIDENCE // 5 :]
        return Fault(kind, text[:MAX_EVIDENCE].rstrip(), line.number, step, onset, shape)

    def _ends_low(self) -> bool:
        return self._scales.is_low and _K.SCALE_COLLAPSE not in self._open

    def _low_scale(self) -> Fault:
        """Return the finding of a run that ended with its loss scale below 1."""
        return self._fault(_K.SCALE_COLLAPSE, 0, self._scales.low_since)
