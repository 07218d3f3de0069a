"""Follows one number: its level, its spread, and how much evidence there is that it has risen above them.

Memory is constant and a reading is cheap: level and spread are computed from every sixteen readings. In between, a
reading only adds to, or subtracts from, a sum of evidence (a CUSUM whose terms are bounded on both sides).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import median, pstdev

from rung.recovery.monitors.levels import swings_around_zero

# Readings in a block, and the number of blocks in the recent past.
BLOCK = 16
PAST = 16
FEWEST_BLOCKS = 4
# Only the first few readings are from the untrained model; soon after, the loss has fallen.
FIRST = 4
# The distance between the quartiles gives a standard deviation that outliers do not change; the second largest of
# sixteen values is 1.3 of them above the median. The tail counts by half, to allow for noise with a heavy tail.
QUARTILES = 0.7413
TAIL = 0.5 / 1.3
# A flat curve has almost no spread; this share of its level and its whole change is the least spread.
FLAT = 0.005
# The level follows a falling loss at once, and a rising one by this share per block, so that a drift stays visible.
FORGET = 0.02
# A reading above this share of the sigmas adds to the evidence; one below subtracts from it.
SLACK = 0.4
# After this many blocks away from the level, the number has a new level, as after a change of the data.
NEW_LEVEL = 32
# A number below this share of its rise is on its way back.
COMING_BACK = 0.9
LATEST = 4
# The first readings since the evidence began, which separate a jump from a slow rise.
EARLY = 8
# The latest readings since then, whose own trend shows whether the number falls again, and how many standard errors
# between their first and last third make a trend: one flat course in forty looks like one that falls. 64 readings show
# a fall with a time constant of 300 under a noise of a tenth.
SINCE = 64
TREND = 2.0


class CusumLevel:
    """Follows one number. `evidence` counts readings that prove that it has left its level."""

    __slots__ = (
        "_block",
        "_blocks_away",
        "_early",
        "_evidence_floor",
        "_last",
        "_levels",
        "_patience",
        "_per_sigma",
        "_seen",
        "_sigmas",
        "_since",
        "_spreads",
        "_tails",
        "_warm_up",
        "around_zero",
        "began",
        "evidence",
        "first",
        "held",
        "length",
        "level",
        "since_restart",
        "step",
        "swing",
    )

    def __init__(self, sigmas: float, patience: int, warm_up: int) -> None:
        self._sigmas, self._patience, self._warm_up = sigmas, patience, warm_up
        self._block: list[float] = []
        self._last: list[float] = []
        self._early: list[float] = []
        self._since: deque[float] = deque(maxlen=SINCE)
        self._levels: deque[float] = deque(maxlen=PAST)
        self._spreads: deque[float] = deque(maxlen=PAST)
        self._tails: deque[float] = deque(maxlen=PAST)
        self._per_sigma = 0.0
        # Values up to this add nothing to the evidence.
        self._evidence_floor = math.inf
        self._seen = 0
        self._blocks_away = 0
        self.evidence = 0.0
        # The step at which the evidence began, and the readings since.
        self.began: int | None = None
        self.length = 0
        # The level of the first readings: that of the untrained model, when the run starts from scratch.
        self.first: float | None = None
        self.level: float | None = None
        # Whether the first readings swing around zero, so that the height means little, and how far they swing.
        self.around_zero = False
        self.swing = 0.0
        # The latest step, and the readings since it last went back, as after a restart in the same log.
        self.step = -1
        self.since_restart = BLOCK
        # True after a warning: the level is kept, because the run can still come back to it.
        self.held = False

    def add(self, step: int | None, value: float) -> bool:
        """Take one finite value; return whether the evidence is complete."""
        self.since_restart += 1
        if step is not None:
            if step < self.step:
                self.since_restart = 1
            self.step = step
        block = self._block
        block.append(value)
        if value > self._evidence_floor or self.evidence:
            self._add_evidence(step, value)
        if len(block) == BLOCK:
            self._close_block()
        return self.evidence >= self._patience

    def quiet_part(self, values: Sequence[float], at: int) -> int:
        """Return how many of these values, from a place on, are of one block and cannot complete the evidence."""
        size = min(BLOCK - len(self._block), len(values) - at)
        if self._are_below(values[at : at + size]):
            return size
        # Each adds 1 at most, whatever it is, and what is rounded is far less than a half.
        return max(0, min(size, int(self._patience - self.evidence - 0.5)))

    def _are_below(self, values: Sequence[float]) -> bool:
        """Return whether none of these values adds to the evidence, and there is none."""
        return not self.evidence and max(values) <= self._evidence_floor

    def add_many(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Take values of one block, at steps that go up."""
        if steps[0] < self.step or not self._are_below(values):
            for step, value in zip(steps, values, strict=True):
                self.add(step, value)
            return
        self.since_restart += len(values)
        self.step = steps[-1]
        self._block.extend(values)
        if len(self._block) == BLOCK:
            self._close_block()

    def _add_evidence(self, step: int | None, value: float) -> None:
        """Add one value to the evidence, or subtract it."""
        if self.level is None:
            return
        if self.evidence == 0.0:
            self.began, self.length, self._early = step, 0, []
            self._since.clear()
        self.length += 1
        self._since.append(value)
        if self.length <= EARLY:
            self._early.append(value)
        share = max(-1.0, min(1.0, (value - self.level) * self._per_sigma))
        self.evidence = max(0.0, min(self.evidence + (share - SLACK) / (1 - SLACK), 2.0 * self._patience))

    def lines_missing(self) -> None:
        """Count the evidence anew: readings are missing here, and may have been on the level."""
        if not self.held:
            self.evidence, self.began, self.length, self._early = 0.0, None, 0, []
            self._since.clear()

    def rise(self) -> float:
        """Return how far the last readings are above the level; 0 when they are on their way back."""
        if self.level is None:
            return 0.0
        recent = (self._last + self._block)[-min(self._patience, BLOCK) :]
        rise = median(recent) - self.level
        latest = median(recent[-LATEST:]) - self.level
        return rise if latest >= COMING_BACK * rise else 0.0

    def trend(self) -> int:
        """Return the trend of the readings since the evidence began: -1 if they fall again, 1 if they rise, else 0."""
        third = len(self._since) // 3
        if third < EARLY:
            return 0
        since = list(self._since)
        first, last = since[:third], since[-third:]
        begin, end = median(first), median(last)
        change = end - begin
        spread = 1.4826 * median([abs(each - begin) for each in first] + [abs(each - end) for each in last])
        # The error of a median is 1.25 times that of a mean.
        enough = TREND * 1.25 * spread * math.sqrt(2 / third)
        return 0 if abs(change) <= enough else 1 if change > 0 else -1

    def may_fall_again(self) -> bool:
        """Return whether a jump that is not above the untrained level needs more readings to show its trend."""
        if self.length >= SINCE or not self.has_jumped() or self.trend() > 0:
            return False
        return self.first is not None and self.level is not None and self.level + self.rise() < self.first

    def learn_again(self) -> None:
        """Take a new level after a jump that falls again, unless most of what was learned is lost."""
        if self.first is None or self.level is None or not self._since:
            return
        if median(list(self._since)[-LATEST:]) < (self.first + self.level) / 2:
            self._reset_level()

    def has_jumped(self) -> bool:
        """Return whether the first readings rose at least half as far as the last ones."""
        if self.level is None or not self._early:
            return False
        return median(self._early) - self.level >= self.rise() / 2

    def _close_block(self) -> None:
        block, self._last, self._block = sorted(self._block), self._block, []
        middle = (block[BLOCK // 2 - 1] + block[BLOCK // 2]) / 2
        self._seen += BLOCK
        if self.first is None:
            self.first = median(self._last[:FIRST])
            self.around_zero = swings_around_zero(self._last)
            self.swing = pstdev(self._last)
        if self.evidence > self._patience / 2:
            self._blocks_away += 1
            # Readings away from the level do not change it, until they have stayed there long enough.
            if self._blocks_away < NEW_LEVEL or self.held:
                return
            self._reset_level()
        self._blocks_away = 0
        self._levels.append(middle)
        self._spreads.append(QUARTILES * (block[-5] + block[-4] - block[3] - block[4]) / 2)
        self._tails.append(TAIL * (block[-2] - middle))
        if self._seen >= self._warm_up and len(self._levels) >= FEWEST_BLOCKS:
            self._update_level()

    def _update_level(self) -> None:
        """Compute level and spread from the past blocks."""
        levels = list(self._levels)
        latest, usual = median(levels[-FEWEST_BLOCKS:]), median(levels)
        level = self.level
        self.level = level = latest if level is None or latest < level else level + FORGET * (usual - level)
        moved = abs(level) + abs((self.first or 0.0) - level)
        spread = max(median(self._spreads), median(self._tails), FLAT * moved, 1e-12)
        self._per_sigma = 1.0 / (self._sigmas * spread)
        self._evidence_floor = level + SLACK * self._sigmas * spread

    def _reset_level(self) -> None:
        self._levels.clear()
        self._spreads.clear()
        self._tails.clear()
        self.level, self.evidence, self._evidence_floor = None, 0.0, math.inf
