"""Monitors the loss scale: a collapse below 1, and a scale that goes up and down. One back-off is neither."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rung.jobs.model.fault import FaultKind
from rung.recovery.signatures import BACKOFFS
from rung.recovery.signatures.scaler import AT_FLOOR, LAST_WORD, LOW_SCALE, STRAIGHT_FALL, THRASH, THRASH_AT_END


@dataclass(frozen=True)
class Backoff:
    """A message about one step that a scaler skipped."""

    attempted: float | None
    to: float | None


def read_backoff(text: str, lower: str) -> Backoff | None:
    """Return the back-off that a line of free text reports, or None; `lower` is the text in lower case."""
    if "scale" not in lower:
        return None
    for row in BACKOFFS:
        if any(anchor in lower for anchor in row.anchors) and (match := row.pattern.search(text)):
            values = match.groupdict()
            attempted, to = _number(values.get("attempted")), _number(values.get("to"))
            # A scale that grows is none.
            return None if attempted is not None and to is not None and to > attempted else Backoff(attempted, to)
    return None


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


class LossScaleMonitor:
    """Follows the loss scale and reports once when it has collapsed or thrashes."""

    def __init__(self) -> None:
        self.low_since: int | None = None
        self._scale: float | None = None
        self._low = 0
        self._at_floor = 0
        self._highest = 0.0
        self._falls = 0
        self._last_backoff: Backoff | None = None
        # Whether no finite loss has come since the last back-off.
        self.is_last_word = False
        self._forget_steps()
        self._reported: set[FaultKind] = set()

    def _forget_steps(self) -> None:
        self._first: int | None = None
        self._step = -1
        self._skips: deque[int] = deque(maxlen=THRASH.most)
        self._ups: deque[int] = deque(maxlen=THRASH.most)
        self._downs: deque[int] = deque(maxlen=THRASH.most)

    def report(self, step: int | None, scale: float | None, skipped: bool | None) -> FaultKind | None:
        """Take the scale of one reported step; return the fault it completes, if any."""
        self._last_backoff = None
        # Programs print -1 where there is no scaler.
        if scale is not None and scale < 0:
            scale = None
        if step is not None:
            if step < self._step or self._first is None:
                self._begin_at(step)
            self._step = step
        before = self._scale
        if scale == before and not skipped and not self._low and scale != 0:
            return None
        if scale is not None:
            self._set_scale(scale)
            self._count_low(step, scale)
        fell = scale is not None and before is not None and scale < before
        if skipped if skipped is not None else fell:
            self._skips.append(self._step)
        # A scale that was always 1 is from bfloat16, which needs no scaler.
        stuck = skipped and scale == before and scale is not None and scale <= AT_FLOOR.floor < self._highest
        self._at_floor = self._at_floor + 1 if stuck else 0
        return self._judge()

    def is_quiet(self, step: int, scale: float) -> bool:
        """Return whether this scale, from this step on, is the one before, and healthy."""
        return scale == self._scale and scale > 0 and not self._low and self._first is not None and step >= self._step

    def report_same(self, step: int) -> None:
        """Take reports of the same healthy scale, up to this step."""
        self._last_backoff, self._step = None, step

    def back_off(self, step: int | None, event: Backoff) -> FaultKind | None:
        """Take the message of a back-off. Every rank prints it, so an equal one right after it does not count."""
        at_floor = event.to is not None and event.attempted == event.to <= AT_FLOOR.floor
        if event == self._last_backoff and not at_floor:
            return None
        self._last_backoff = event
        self.is_last_word = True
        if step is not None:
            if step < self._step or self._first is None:
                self._begin_at(step)
            self._step = step
        self._at_floor = self._at_floor + 1 if at_floor else 0
        if event.attempted is not None:
            self._set_scale(event.attempted)
        if event.to is not None:
            self._set_scale(event.to)
            self._count_low(step, event.to)
        self._skips.append(self._step)
        return self._judge()

    def lines_missing(self) -> None:
        """Count anew what must come in a row: reports of a healthy scale may be missing here."""
        self._forget_steps()
        self._low = self._at_floor = self._falls = 0
        self.low_since, self.is_last_word = None, False

    def see_finite_loss(self) -> None:
        self.is_last_word = False

    @property
    def is_known(self) -> bool:
        return self._scale is not None

    @property
    def is_low(self) -> bool:
        """Return whether the log so far ends with a scale below 1, for more than one report, or at its floor."""
        fallen = self._falls >= STRAIGHT_FALL.at_end or (self._scale is not None and self._scale <= LOW_SCALE.deep)
        deep = self._low >= 1 and fallen
        falling = self.is_last_word and self._falls >= LAST_WORD.at_end and (self._scale or 0.0) <= LAST_WORD.floor
        return falling or deep or self._low >= LOW_SCALE.at_end or self._at_floor >= AT_FLOOR.at_end

    @property
    def thrashes_at_end(self) -> bool:
        """Return whether a short log shows a scale that went up and down so often that a large share was skipped."""
        span, limits = self._span(), THRASH_AT_END
        turns = min(len(self._ups), len(self._downs))
        return span >= limits.fewest and turns >= limits.consecutive and len(self._skips) > limits.share * span

    def _span(self) -> int:
        return min(self._step - (self._first or 0) + 1, THRASH.most)

    def _begin_at(self, step: int) -> None:
        self._forget_steps()
        self._first = step

    def _set_scale(self, scale: float) -> None:
        if self._scale is not None and scale != self._scale:
            (self._ups if scale > self._scale else self._downs).append(self._step)
            self._falls = self._falls + 1 if scale < self._scale else 0
        self._scale = scale
        self._highest = max(self._highest, scale)

    def _count_low(self, step: int | None, scale: float) -> None:
        if scale >= LOW_SCALE.floor:
            self._low, self.low_since = 0, None
            return
        if self._low == 0:
            self.low_since = step
        self._low += 1

    def _judge(self) -> FaultKind | None:
        if self._low >= LOW_SCALE.consecutive or self._at_floor >= AT_FLOOR.consecutive or self._scale == 0:
            return self._report_once(FaultKind.SCALE_COLLAPSE)
        for events in (self._skips, self._ups, self._downs):
            while events and events[0] <= self._step - THRASH.most:
                events.popleft()
        span = self._span()
        turning = len(self._ups) >= THRASH.consecutive and len(self._downs) >= THRASH.consecutive
        if turning and span >= THRASH.fewest and len(self._skips) > THRASH.share * span:
            return self._report_once(FaultKind.SCALE_THRASH)
        return None

    def _report_once(self, kind: FaultKind) -> FaultKind | None:
        if kind in self._reported:
            return None
        self._reported.add(kind)
        return kind
