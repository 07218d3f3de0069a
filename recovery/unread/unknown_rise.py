"""Finds a loss that ends far above its first value where its name is not that of a loss: `ep9 err=7.6e11`.

Only names of what is minimized count, and only a rise that no score makes. It explains the end of a log, no more.
"""

from __future__ import annotations

import math
from collections import deque

from rung.recovery.doubts.names import Column
from rung.recovery.monitors.levels import RUINED, SMALL

FEWEST = 5
# The last readings of which each is so high.
LAST = 3
# A mean over a batch has no such value, not even a squared error of prices.
BEYOND_ALL = 1e15


class UnknownRise:
    """Watches the first number of each line that has a name of what is minimized."""

    def __init__(self) -> None:
        self._name = ""
        self._seen = 0
        self._first = self._lowest = math.inf
        self._last: deque[float] = deque(maxlen=LAST)

    def see(self, name: str, value: float, what: Column) -> None:
        """Take the first number of a line."""
        if what is not Column.LOSS or not math.isfinite(value):
            return
        if name != self._name:
            self._name, self._seen, self._first, self._lowest = name, 0, value, math.inf
            self._last.clear()
        self._seen += 1
        self._lowest = min(self._lowest, value)
        self._last.append(value)

    @property
    def ends_high(self) -> bool:
        """Return whether the log so far ends far above its first value, or has never been lower than impossible."""
        if self._seen < FEWEST or self._lowest < 0:
            return False
        return min(self._last) > RUINED * max(self._first, SMALL) or self._lowest > BEYOND_ALL
