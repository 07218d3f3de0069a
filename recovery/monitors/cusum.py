"""Follows one number: its level, its spread, and how much evidence there is that it has risen above them.

Constant memory and next to no time for a reading: level and spread are taken anew from every sixteen readings, and in
between each reading only adds to, or takes from, a sum of evidence (a CUSUM whose terms are bounded on both sides).
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

# Readings that are summed up together, and how many such blocks make up "its own recent past".
BLOCK = 16
PAST = 16
FEWEST_BLOCKS = 4
# The very first readings are what an untrained model says; soon after, the loss has already fallen.
FIRST = 4
# The distance of the quartiles gives a standard deviation that a few wild values do not move; the second largest of
# sixteen lies 1.3 of them above the middle. The tail counts by half, so that noise with a heavy tail is known as such.
QUARTILES = 0.7413
TAIL = 0.5 / 1.3
# A flat curve has next to no spread; what is less than this share of what it moved at all is no sign of anything.
FLAT = 0.005
# The level follows a loss that falls at once, and one that rises by this share a block: a drift is not followed.
FORGET = 0.02
# A reading counts against the run from this share of the sigmas on; below, it counts for it.
SLACK = 0.4
# Blocks for which a level may be left without going far: then it is the new level, as after a change of the data.
NEW_LEVEL = 32
# A number that is on its way back stands below this share of how high it has been.
COMING_BACK = 0.9
LATEST = 4
# The first readings since the evidence began, which tell a jump from a climb.
EARLY = 8


class CusumLevel:
    """Follows one number. `evidence` is how many readings' worth of proof there is that it has left its level."""

    __slots__ = (
        "_block",
        "_early",
        "_frozen",
        "_last",
        "_levels",
        "_patience",
        "_per_sigma",
        "_quiet",
        "_seen",
        "_sigmas",
        "_spreads",
        "_tails",
        "_warm_up",
        "began",
        "evidence",
        "first",
        "held",
        "length",
        "level",
        "since_restart",
        "step",
    )

    def __init__(self, sigmas: float, patience: int, warm_up: int) -> None:
        self._sigmas, self._patience, self._warm_up = sigmas, patience, warm_up
        self._block: list[float] = []
        self._last: list[float] = []
        self._early: list[float] = []
        self._levels: deque[float] = deque(maxlen=PAST)
        self._spreads: deque[float] = deque(maxlen=PAST)
        self._tails: deque[float] = deque(maxlen=PAST)
        self._per_sigma = 0.0
        # Up to here a value adds nothing.
        self._quiet = math.inf
        self._seen = 0
        self._frozen = 0
        self.evidence = 0.0
        # The step since which there has been evidence at all, and how many readings ago that was.
        self.began: int | None = None
        self.length = 0
        # The level of the first readings, which is the untrained model's where a run starts anew.
        self.first: float | None = None
        self.level: float | None = None
        # The latest step, and the readings since it last went back, as it does when a run starts again in the same log.
        self.step = -1
        self.since_restart = BLOCK
        # Set while the level is what a run that was warned of may still come back to.
        self.held = False

    def add(self, step: int | None, value: float) -> bool:
        """Take one value, which is finite; return whether the evidence is complete."""
        self.since_restart += 1
        if step is not None:
            if step < self.step:
                self.since_restart = 1
            self.step = step
        block = self._block
        block.append(value)
        if value > self._quiet or self.evidence:
            self._weigh(step, value)
        if len(block) == BLOCK:
            self._close()
        return self.evidence >= self._patience

    def _weigh(self, step: int | None, value: float) -> None:
        """Let one value add to the evidence, or take from it."""
        if self.level is None:
            return
        if self.evidence == 0.0:
            self.began, self.length, self._early = step, 0, []
        self.length += 1
        if self.length <= EARLY:
            self._early.append(value)
        share = max(-1.0, min(1.0, (value - self.level) * self._per_sigma))
        self.evidence = max(0.0, min(self.evidence + (share - SLACK) / (1 - SLACK), 2.0 * self._patience))

    def rise(self) -> float:
        """Return by how much the last readings stand above the level; 0 when they are on their way back."""
        if self.level is None:
            return 0.0
        recent = (self._last + self._block)[-min(self._patience, BLOCK) :]
        rise = median(recent) - self.level
        latest = median(recent[-LATEST:]) - self.level
        return rise if latest >= COMING_BACK * rise else 0.0

    def has_jumped(self) -> bool:
        """Tell whether the number was up at once: half as high within the first readings as it is now, or higher."""
        if self.level is None or not self._early:
            return False
        return median(self._early) - self.level >= self.rise() / 2

    def _close(self) -> None:
        block, self._last, self._block = sorted(self._block), self._block, []
        middle = (block[BLOCK // 2 - 1] + block[BLOCK // 2]) / 2
        self._seen += BLOCK
        if self.first is None:
            self.first = median(self._last[:FIRST])
        if self.evidence > self._patience / 2:
            self._frozen += 1
            # What is far from the level is not its past; what has stayed near it for long enough is.
            if self._frozen < NEW_LEVEL or self.held:
                return
            self._forget()
        self._frozen = 0
        self._levels.append(middle)
        self._spreads.append(QUARTILES * (block[-5] + block[-4] - block[3] - block[4]) / 2)
        self._tails.append(TAIL * (block[-2] - middle))
        if self._seen >= self._warm_up and len(self._levels) >= FEWEST_BLOCKS:
            self._settle()

    def _settle(self) -> None:
        """Take level and spread from the past blocks."""
        levels = list(self._levels)
        latest, usual = median(levels[-FEWEST_BLOCKS:]), median(levels)
        level = self.level
        self.level = level = latest if level is None or latest < level else level + FORGET * (usual - level)
        moved = abs(level) + abs((self.first or 0.0) - level)
        spread = max(median(self._spreads), median(self._tails), FLAT * moved, 1e-12)
        self._per_sigma = 1.0 / (self._sigmas * spread)
        self._quiet = level + SLACK * self._sigmas * spread

    def _forget(self) -> None:
        self._levels.clear()
        self._spreads.clear()
        self._tails.clear()
        self.level, self.evidence, self._quiet = None, 0.0, math.inf
