"""Owns the watch over runs that are ruined although every number is finite: a loss that has soared and stays up there.

The early warning needs a level that was learned to see one left. A run that soars from its first steps on never had
one, and a run may end in ruins without a NaN. Both are held against the first loss. A bad batch now and then is none.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

# No healthy loss stands at ten thousand times what the untrained model had; eight of ten readings are no bad batch.
RUINED = 1e4
OF_THE_LAST = 10
CONSECUTIVE = 8
# A run that ends here has unlearned more than it knew, whatever it went through.
SPOILT_AT_END = 20.0
AT_END = 8
FEWEST = 16
# A first loss below this may be noise around zero, as of a policy or a GAN; then the largest of the first few counts.
SMALL = 0.1
FIRST = 8
# No learning rate takes a loss this far in one step once a run has got going; a batch does.
JUMP = 1000.0
# A run that was so far up in its first steps, and is no better than untrained after so many readings since, is spent:
# such a learning rate leaves units that no gradient reaches any more.
SOARED = 10.0
SOARED_READINGS = 3
SPENT_READINGS = 96
SPENT = 0.95
# Losses printed under more names than this are not told apart any more.
MAX_NAMES = 8


class BlowUpMonitor:
    """Follows the losses of a run by their names and says once when one of them is ruined."""

    def __init__(self) -> None:
        self._losses: dict[str, BlowUp] = {}
        self._told = False

    def see(self, step: int | None, name: str, loss: float) -> BlowUp | None:
        """Take one loss; return its course when that is ruined with it."""
        course = self._losses.get(name)
        if course is None:
            if len(self._losses) >= MAX_NAMES:
                return None
            course = self._losses[name] = BlowUp()
        if not course.see(step, loss) or self._told:
            return None
        self._told = True
        return course

    @property
    def active(self) -> bool:
        """Tell whether a loss is up there now."""
        return any(course.is_ruined or course.is_spent for course in self._losses.values())

    def at_end(self) -> BlowUp | None:
        """Return the course of a loss that the log leaves far above where it began."""
        return next((course for course in self._losses.values() if course.ends_high), None)


class BlowUp:
    """One loss beside the one it began with."""

    __slots__ = ("_bits", "_last", "_recent", "_seen", "_soared", "_yard", "jumped", "since", "soared_at")

    def __init__(self) -> None:
        self._yard = 0.0
        self._seen = 0
        # One bit a reading, the latest lowest: was it that high.
        self._bits = 0
        self._last: deque[float] = deque(maxlen=AT_END)
        self._recent: deque[float] = deque(maxlen=SPENT_READINGS)
        # How many of the first readings were far up, and the step of the first of them.
        self._soared = 0
        self.soared_at: int | None = None
        # The step since which the loss has stood far above its first.
        self.since: int | None = None
        # Whether it got there in one step.
        self.jumped = False

    def see(self, step: int | None, loss: float) -> bool:
        """Take one reading; tell whether the loss is ruined."""
        if not math.isfinite(loss):
            return False
        self._seen += 1
        if self._seen == 1 or (self._seen <= FIRST and self._yard < SMALL):
            self._yard = max(self._yard, abs(loss))
        if loss <= SPOILT_AT_END * self._yard:
            self.since = None
        elif self.since is None:
            self.since = step
            self.jumped = self._seen > FEWEST and loss > JUMP * max(map(abs, self._last))
        self._bits = (self._bits << 1 | (loss > RUINED * max(self._yard, SMALL))) & ((1 << OF_THE_LAST) - 1)
        self._last.append(loss)
        self._recent.append(loss)
        if self._seen <= SPENT_READINGS and loss > SOARED * max(self._yard, SMALL):
            self._soared += 1
            self.soared_at = step if self.soared_at is None else self.soared_at
            self._recent.clear()
        return self.is_ruined or self.is_spent

    @property
    def is_ruined(self) -> bool:
        return self._bits.bit_count() >= CONSECUTIVE

    @property
    def is_spent(self) -> bool:
        """Tell whether the loss soared in the first steps and has not been better than the untrained model's since."""
        if self._soared < SOARED_READINGS or len(self._recent) < SPENT_READINGS:
            return False
        third = SPENT_READINGS // 3
        return median(list(self._recent)[-third:]) > SPENT * self._yard

    @property
    def onset(self) -> int | None:
        return self.since if self.since is not None else self.soared_at

    @property
    def ends_high(self) -> bool:
        enough = self._seen >= FEWEST
        return enough and median(self._last) > SPOILT_AT_END * max(self._yard, SMALL) and self.since is not None

    @property
    def said(self) -> str:
        return f"loss about {median(self._last):.4g}, {self._yard:.4g} when the log began"
