"""Builds a fault with its evidence: the line, the step, when the numbers went wrong, the traceback and the replay."""

from __future__ import annotations

from collections.abc import Mapping

from rung.jobs.model.fault import Fault, FaultKind
from rung.recovery.detect.log_tail import MAX_EVIDENCE, Traceback
from rung.recovery.detect.several_ranks import outranks
from rung.recovery.logs.lines import Line
from rung.recovery.monitors.fault_groups import BAD_VALUE, HAS_ONSET
from rung.recovery.monitors.onset import OnsetTracker


class FaultBuilder:
    """Follows what a fault would show as its evidence."""

    def __init__(self) -> None:
        self.line: Line = Line(0, "")
        self.step: int | None = None
        # The line of the latest numbers: what only the end of the log decides was decided by them.
        self.number_line: Line = self.line
        self.onset = OnsetTracker()
        self.traceback = Traceback()
        # What the job reported about the replay of a failed step.
        self.replay: Mapping[str, str] = {}

    def see_replay(self, replay: Mapping[str, str]) -> None:
        """Take a replay, unless the one of another rank near it shows more."""
        if not outranks(self.replay, replay):
            self.replay = replay

    def build_from_numbers(self, kind: FaultKind, *, onset: int | None = None, note: str = "") -> Fault:
        """Return a fault at the line of the latest numbers, whatever was printed after them."""
        now, self.line = self.line, self.number_line
        try:
            return self.build(kind, onset=onset, note=note)
        finally:
            self.line = now

    def build(self, kind: FaultKind, start: int = 0, *, onset: int | None = None, note: str = "") -> Fault:
        """Return a fault at the current line and step; `start` is where its message begins in that line."""
        text, source, step = self.line.text, self.traceback.source, self.step
        # A message far out in a long line is shown with a little of what stands before it.
        text = text if start <= MAX_EVIDENCE // 2 else text[start - MAX_EVIDENCE // 5 :]
        shown = text[:MAX_EVIDENCE].rstrip()
        if kind not in HAS_ONSET:
            return Fault(kind, shown, self.line.number, step, onset, note=note, source=source)
        located, shape = self.onset.locate(step, is_bad_value=kind in BAD_VALUE)
        onset = min((each for each in (onset, located) if each is not None), default=None)
        norm = self.onset.first_norm
        return Fault(kind, shown, self.line.number, step, onset, shape, note, self.replay, source, norm)
