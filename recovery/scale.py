"""Owns the watch over the loss scale: a collapse below 1 and a scale that goes up and down. One back-off is neither."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from jobs.fault import FaultKind

# A scaler whose forward pass overflows every batch halves on to exactly 0; 20 reports below 1 are no accident.
LOW_REPORTS = 20
# At the end of a log fewer will do, but one dip is a back-off.
LOW_REPORTS_AT_END = 2
# "Cannot go lower", said this many times in a row.
FLOOR_REPORTS = 3
# More than 5 % of at least 100 and at most the last 200 steps skipped, with at least two ups and two downs.
WINDOW = 200
FEWEST_STEPS = 100
SKIPPED_SHARE = 0.05
FEWEST_TURNS = 2

_NUMBER = r"(\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,4})?)"
# DeepSpeed: "Attempted loss scale: 2, reducing to 1"; apex: "reducing loss scale to 1.0"; fairseq: "setting loss scale
# to: 1.0"; "new scale: 512.0" and "Loss scale reduced from 2 to 1" in scripts.
_ATTEMPTED = re.compile(rf"(?:Attempted loss scale: |loss scale (?:reduced )?from ){_NUMBER}", re.IGNORECASE)
_TO = re.compile(
    rf"(?:reducing to |scale to:? |new (?:loss )?scale: |loss scale (?:reduced )?from \S{{1,40}} to ){_NUMBER}",
    re.IGNORECASE,
)
_BACKOFF_WORDS = ("overflow", "reducing", "skipping", "skipped batch", "scale reduced")


@dataclass(frozen=True)
class Backoff:
    """One step that a scaler skipped, told in words."""

    attempted: float | None
    to: float | None


def read_backoff(text: str, lower: str) -> Backoff | None:
    """Return the back-off a line of free text tells of, or None; `lower` is the text in lower case."""
    if "scale" not in lower or not any(word in lower for word in _BACKOFF_WORDS):
        return None
    attempted, to = _ATTEMPTED.search(text), _TO.search(text)
    if not attempted and not to:
        return None
    return Backoff(float(attempted[1]) if attempted else None, float(to[1]) if to else None)


class ScaleWatch:
    """Follows the loss scale and says once when it has collapsed or thrashes."""

    def __init__(self) -> None:
        self.low_since: int | None = None
        self._scale: float | None = None
        self._low = 0
        self._floor = 0
        self._last_backoff: Backoff | None = None
        self._forget_steps()
        self._told: set[FaultKind] = set()

    def _forget_steps(self) -> None:
        self._first: int | None = None
        self._step = -1
        self._skips: deque[int] = deque(maxlen=WINDOW)
        self._ups: deque[int] = deque(maxlen=WINDOW)
        self._downs: deque[int] = deque(maxlen=WINDOW)

    def report(self, step: int | None, scale: float | None, skipped: bool | None) -> FaultKind | None:
        """Take the scale of one reported step; return the fault it completes, if any."""
        self._last_backoff = None
        if step is not None:
            self._advance(step)
        before = self._scale
        if scale == before and not skipped and not self._low and scale != 0:
            return None
        if scale is not None:
            self._turn(scale)
            self._low_report(step, scale)
        fell = scale is not None and before is not None and scale < before
        if skipped if skipped is not None else fell:
            self._skips.append(self._step)
        return self._verdict()

    def back_off(self, step: int | None, event: Backoff) -> FaultKind | None:
        """Take a back-off told in words. Every rank prints the same line: the same one again is no second event."""
        at_floor = event.to is not None and event.attempted == event.to <= 1
        if event == self._last_backoff and not at_floor:
            return None
        self._last_backoff = event
        if step is not None:
            self._advance(step)
        self._floor = self._floor + 1 if at_floor else 0
        if event.attempted is not None:
            self._turn(event.attempted)
        if event.to is not None:
            self._turn(event.to)
            self._low_report(step, event.to)
        self._skips.append(self._step)
        return self._verdict()

    @property
    def is_low(self) -> bool:
        """Tell whether the log so far ends with a scale below 1, for more than one report."""
        return self._low >= LOW_REPORTS_AT_END

    def _advance(self, step: int) -> None:
        if step < self._step or self._first is None:
            self._forget_steps()
            self._first = step
        self._step = step

    def _turn(self, scale: float) -> None:
        if self._scale is not None and scale != self._scale:
            (self._ups if scale > self._scale else self._downs).append(self._step)
        self._scale = scale

    def _low_report(self, step: int | None, scale: float) -> None:
        if scale >= 1:
            self._low, self.low_since = 0, None
            return
        if self._low == 0:
            self.low_since = step
        self._low += 1

    def _verdict(self) -> FaultKind | None:
        if self._low >= LOW_REPORTS or self._floor >= FLOOR_REPORTS or self._scale == 0:
            return self._tell(FaultKind.SCALE_COLLAPSE)
        for events in (self._skips, self._ups, self._downs):
            while events and events[0] <= self._step - WINDOW:
                events.popleft()
        span = min(self._step - (self._first or 0) + 1, WINDOW)
        turning = len(self._ups) >= FEWEST_TURNS and len(self._downs) >= FEWEST_TURNS
        if turning and span >= FEWEST_STEPS and len(self._skips) > SKIPPED_SHARE * span:
            return self._tell(FaultKind.SCALE_THRASH)
        return None

    def _tell(self, kind: FaultKind) -> FaultKind | None:
        if kind in self._told:
            return None
        self._told.add(kind)
        return kind
