"""Finds runs that are ruined although every number is finite: the loss stays far above the first one.

The early warning (divergence.py) compares with a level that the run had reached. A run that blows up in its first
steps never had one, so here the loss is compared with the first one. A bad batch now and then does not count.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from rung.recovery.monitors.levels import AT_END, EARLY_BLOW_UP, EXPLODED, JUMP, RUINED, SMALL, swings_around_zero

# Eight of ten readings that high are more than a bad batch.
OF_THE_LAST = 10
CONSECUTIVE = 8
# The number of last readings whose median counts, and the fewest readings of a run.
LAST_READINGS = 8
FEWEST = 16
# Where the first loss is too small to compare with, the largest of this many counts.
FIRST = 8
# A run that blew up in its first steps and is no better than untrained after so many further readings is spent:
# after too high an lr, some units get no gradient any more.
EARLY_READINGS = 3
SPENT_READINGS = 96
SPENT = 0.95
# At the end of a log with fewer readings than FEWEST: so many high ones in a row count where they do not rise any more,
# if the last is not below this share of the highest; the average of a bad batch falls faster.
STAYS_HIGH = 4
SHARE_LEFT = 0.75
# So many rises in a row are no bad batch: the last reading is then compared with the first.
GROWS, FEWEST_GROWING = 3, 5
# In a log with losses under more names than this, only the first ones are followed.
MAX_NAMES = 8


class BlowUpMonitor:
    """Follows the losses of a run by name and reports once when one of them is ruined."""

    def __init__(self) -> None:
        self._losses: dict[str, BlowUp] = {}
        self._reported = False

    def see(self, step: int | None, name: str, loss: float) -> BlowUp | None:
        """Take one loss; return its blow-up when this loss completes it."""
        blow_up = self._losses.get(name)
        if blow_up is None:
            if len(self._losses) >= MAX_NAMES:
                return None
            blow_up = self._losses[name] = BlowUp()
        if not blow_up.see(step, loss) or self._reported:
            return None
        self._reported = True
        return blow_up

    def is_quiet(self, name: str, losses: Sequence[float]) -> bool:
        """Return whether losses of this name are far below what counts, in a run that is past its first steps."""
        blow_up = self._losses.get(name)
        return not self._reported and blow_up is not None and blow_up.is_quiet(max(losses))

    def see_quiet(self, name: str, losses: Sequence[float]) -> None:
        """Take losses in a row that are quiet."""
        self._losses[name].see_quiet(losses)

    @property
    def active(self) -> bool:
        """Return whether a loss is blown up now."""
        # The first one that is blown up is reported.
        return self._reported and any(each.is_ruined or each.is_spent for each in self._losses.values())

    def lines_missing(self) -> None:
        """Count anew what must come in a row: readings are missing here."""
        for blow_up in self._losses.values():
            blow_up.lines_missing()

    def at_end(self, *, may_be_negative: bool = False) -> BlowUp | None:
        """Return the blow-up of a loss that ends far above its first value.

        `may_be_negative`: a part of the loss was. The losses of a policy and its critic, or of a GAN, may grow by
        design, so that a few readings show nothing.
        """
        short = not may_be_negative and all(each.lowest > 0.0 for each in self._losses.values())
        found = (each for each in self._losses.values() if each.ends_high or (short and each.exploded))
        return next(found, None)


class BlowUp:
    """Compares one loss with its first value."""

    def __init__(self) -> None:
        self._first_loss = 0.0
        self._seen = 0
        # One bit for each reading, the latest lowest: was it above RUINED.
        self._ruined_bits = 0
        self._last: deque[float] = deque(maxlen=LAST_READINGS)
        self._around_zero = False
        self._begin: list[float] = []
        self.lowest = math.inf
        self._recent: deque[float] = deque(maxlen=SPENT_READINGS)
        # How many of the first readings were above EARLY_BLOW_UP, and the step of the first of them.
        self._early_blow_ups = 0
        self.early_blow_up_at: int | None = None
        # The step since which the loss has been above AT_END.
        self.since: int | None = None
        # Whether it rose above AT_END in one step.
        self.jumped = False

    def see(self, step: int | None, loss: float) -> bool:
        """Take one reading; return whether the loss is ruined or spent."""
        if not -math.inf < loss < math.inf:
            return False
        self._seen += 1
        if self._seen == 1 or (self._seen <= FIRST and self._first_loss < SMALL):
            self._first_loss = max(self._first_loss, abs(loss))
        is_high = loss > AT_END * self._first_loss
        if not is_high:
            self.since = None
        elif self.since is None:
            self.since = step
            self.jumped = self._seen > FEWEST and loss > JUMP * max(map(abs, self._last))
        # A loss that is ruined is high, too.
        if is_high or self._ruined_bits:
            ruined = loss > RUINED * max(self._first_loss, SMALL)
            self._ruined_bits = (self._ruined_bits << 1 | ruined) & ((1 << OF_THE_LAST) - 1)
        if loss < self.lowest:
            self.lowest = loss
        self._last.append(loss)
        self._recent.append(loss)
        if self._seen <= SPENT_READINGS:
            self._see_early(step, loss)
        if not self._ruined_bits and self._early_blow_ups < EARLY_READINGS:
            return False
        return self.is_ruined or self.is_spent

    def is_quiet(self, highest: float) -> bool:
        """Return whether losses up to this one can neither begin nor go on with anything."""
        is_early = self._seen < SPENT_READINGS or self._early_blow_ups >= EARLY_READINGS
        return not (is_early or self._ruined_bits) and highest <= AT_END * self._first_loss

    def see_quiet(self, losses: Sequence[float]) -> None:
        """Take losses in a row that are quiet."""
        self._seen += len(losses)
        self.since = None
        self.lowest = min(self.lowest, *losses)
        self._last.extend(losses)
        self._recent.extend(losses)

    def _see_early(self, step: int | None, loss: float) -> None:
        """Take one of the first readings."""
        if self._seen <= FEWEST:
            self._begin.append(loss)
        if self._seen == LAST_READINGS:
            self._around_zero = swings_around_zero(self._last)
        if loss > EARLY_BLOW_UP * max(self._first_loss, SMALL):
            self._early_blow_ups += 1
            self.early_blow_up_at = step if self.early_blow_up_at is None else self.early_blow_up_at
            self._recent.clear()

    def lines_missing(self) -> None:
        """Count anew what must come in a row, unless that is complete: readings are missing here."""
        if not (self.is_ruined or self.is_spent):
            self._ruined_bits = 0
            self._recent.clear()

    @property
    def is_ruined(self) -> bool:
        return self._ruined_bits.bit_count() >= CONSECUTIVE

    @property
    def is_spent(self) -> bool:
        """Return whether the loss blew up in the first steps and has been no better than untrained since."""
        if self._around_zero or self._early_blow_ups < EARLY_READINGS or len(self._recent) < SPENT_READINGS:
            return False
        third = SPENT_READINGS // 3
        return median(list(self._recent)[-third:]) > SPENT * self._first_loss

    @property
    def onset(self) -> int | None:
        return self.since if self.since is not None else self.early_blow_up_at

    @property
    def ends_high(self) -> bool:
        """Return whether the loss ends far above its first value, however short the log is if it is still exploding."""
        enough = self._seen >= FEWEST and not self._around_zero
        far = enough and median(self._last) > AT_END * max(self._first_loss, SMALL) and self.since is not None
        return far or self._explodes

    @property
    def _explodes(self) -> bool:
        """Return whether the last two readings are above RUINED and rising; a bad batch and its average fall again."""
        return self._ruined_bits & 0b11 == 0b11 and self._last[-1] > self._last[-2]

    @property
    def exploded(self) -> bool:
        """Return whether a log of a few readings ends with a loss that has left its range and does not come back."""
        losses = self._begin
        if not 3 <= self._seen < FEWEST:
            return False
        rises = losses[-2] > EXPLODED * max(*losses[:-2], SMALL) and losses[-1] > losses[-2]
        last = losses[-STAYS_HIGH:] if self._seen > STAYS_HIGH else [0.0]
        stays = min(last) > EXPLODED * max(losses[0], SMALL) and last[-1] > SHARE_LEFT * max(losses)
        return rises or stays or self._grows

    @property
    def _grows(self) -> bool:
        """Return whether a log of a few readings ends with rises in a row, to far above its first one."""
        last = self._begin[-GROWS - 1 :]
        if len(self._begin) < FEWEST_GROWING or any(late <= early for early, late in pairwise(last)):
            return False
        return last[-1] > EXPLODED * max(self._begin[0], SMALL) and last[-2] > AT_END * max(self._begin[0], SMALL)

    @property
    def description(self) -> str:
        now = self._last[-1] if self._explodes or self._seen < FEWEST else median(self._last)
        return f"loss about {now:.4g}, {self._first_loss:.4g} when the log began"
