"""Decides which updates are reported, by their number alone: what Rung sees does not depend on the machine's speed."""

from __future__ import annotations

# The first updates are all reported, because most faults of a script appear there. Then every (n // FIRST)-th one is,
# so that a longer log shows the same share of the run, up to WIDEST: a fault is seen at most so many updates late.
FIRST = 512
WIDEST = 32
# So many bad updates in a row are reported at once; then as often as all others.
URGENT = 64


def is_due(number: int) -> bool:
    """Return whether the update with this number in its course, from 1, is reported."""
    apart = number // FIRST
    return apart < 2 or number % (apart if apart < WIDEST else WIDEST) == 0


class ReportRate:
    """Decides whether an update of one optimizer is reported, and counts the bad ones in a row."""

    __slots__ = ("_bad",)

    def __init__(self) -> None:
        self._bad = 0

    def is_due(self, number: int, *, bad: bool) -> bool:
        """Return whether this update is reported; each update is asked for once."""
        self._bad = self._bad + 1 if bad else 0
        return 0 < self._bad <= URGENT or is_due(number)

    @property
    def newest_was_good(self) -> bool:
        """Return whether the newest update was good."""
        return self._bad == 0
