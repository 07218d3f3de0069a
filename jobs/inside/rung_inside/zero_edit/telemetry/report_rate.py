"""Owns how often a fast training reports: often while it is young, later by the clock, so that no log grows fast."""

from __future__ import annotations

# The first updates are all reported: most faults that a script has come there.
FIRST = 32
# A record at most every 20 ms per second of age, up to 20 a second; in long runs fewer, down to one a second.
YOUNG, STEADY = 1 / 50, 0.05
OLD, SLOWEST = 1 / 2400, 1.0
# Bad news in a row is told at once so many times; then by the clock like all other.
URGENT = 64


class Pace:
    """Says whether a report is due. `now` is any clock in seconds that does not go back."""

    __slots__ = ("_began", "_due", "_reports", "_urgent")

    def __init__(self) -> None:
        self._began: float | None = None
        self._due = 0.0
        self._reports = 0
        self._urgent = 0

    def due(self, now: float) -> bool:
        """Tell whether an ordinary update is to be reported now."""
        return now >= self._due or self._reports < FIRST

    def due_at_once(self, now: float) -> bool:
        """Tell whether bad news is to be reported now."""
        self._urgent += 1
        return self._urgent <= URGENT or self.due(now)

    @property
    def is_calm(self) -> bool:
        """Tell whether the newest update was no bad news."""
        return self._urgent == 0

    def calm(self) -> None:
        """Take an update that is no bad news."""
        self._urgent = 0

    def reported(self, now: float) -> None:
        if self._began is None:
            self._began = now
        age = now - self._began
        self._reports += 1
        self._due = now + min(SLOWEST, max(min(STEADY, age * YOUNG), age * OLD))
