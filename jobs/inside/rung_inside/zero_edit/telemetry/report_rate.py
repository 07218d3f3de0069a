"""Limits how often a fast training reports: often at first, later by the clock, so that no log grows fast."""

from __future__ import annotations

# The first updates are all reported, because most faults of a script appear there.
FIRST = 32
# A record at most every 20 ms per second of age, up to 20 a second; in long runs fewer, down to one a second.
YOUNG, STEADY = 1 / 50, 0.05
OLD, SLOWEST = 1 / 2400, 1.0
# So many bad updates in a row are reported at once; then by the clock like all others.
URGENT = 64


class ReportRate:
    """Decides whether a report is due. `now` is any monotonic clock in seconds."""

    __slots__ = ("_began", "_due", "_reports", "_urgent")

    def __init__(self) -> None:
        self._began: float | None = None
        self._due = 0.0
        self._reports = 0
        self._urgent = 0

    def due(self, now: float) -> bool:
        """Return whether an ordinary update is reported now."""
        return now >= self._due or self._reports < FIRST

    def due_urgent(self, now: float) -> bool:
        """Return whether a bad update is reported now."""
        self._urgent += 1
        return self._urgent <= URGENT or self.due(now)

    @property
    def newest_was_good(self) -> bool:
        """Return whether the newest update was good."""
        return self._urgent == 0

    def saw_good(self) -> None:
        """Record a good update."""
        self._urgent = 0

    def reported(self, now: float) -> None:
        if self._began is None:
            self._began = now
        age = now - self._began
        self._reports += 1
        self._due = now + min(SLOWEST, max(min(STEADY, age * YOUNG), age * OLD))
