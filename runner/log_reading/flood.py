"""Decides when a log grows faster than it can be read, and which part of it is then only searched for messages."""

from __future__ import annotations

# A log is flooded when more than this is not read yet, and it has become more with each of so many slices in a row.
BEHIND, GROWING = 2 << 20, 3
# Even if it grows slowly: reading so much takes 20 seconds, in which no fault is seen.
FAR_BEHIND = 64 << 20
# The end of the part that is not read yet is read in full, so that the latest numbers are known.
KEPT = 128 * 1024


class Flood:
    """Follows how far the reading of one log is behind."""

    def __init__(self) -> None:
        self.is_flooded = False
        # Bytes that were only searched.
        self.skipped = 0
        # Whether the last look has found the log flooded for the first time.
        self.begins = False
        self.has_begun = False
        self._until: int | None = None
        self._behind: int | None = None
        self._growing = 0

    @property
    def is_skipping(self) -> bool:
        return self._until is not None

    def look(self, offset: int, behind: int) -> None:
        """Look how much is not read yet after a slice, and decide what is skipped."""
        self.begins = False
        if self._until is not None:
            return
        more = self._behind is not None and behind > self._behind
        self._growing = self._growing + 1 if more else 0
        self._behind = behind
        outgrown = behind > BEHIND and (self.is_flooded or self._growing >= GROWING)
        if outgrown or behind > FAR_BEHIND:
            self.begins, self.has_begun, self.is_flooded = not self.has_begun, True, True
            self._until = offset + behind - KEPT

    def bounded(self, offset: int, size: int) -> int:
        """Return how much is skipped next."""
        return size if self._until is None else max(1, min(size, self._until - offset))

    def count(self, offset: int, size: int) -> None:
        """Take note that so much was only searched, up to this place."""
        self.skipped += size
        if self._until is not None and offset >= self._until:
            self._until = self._behind = None

    def caught_up(self) -> None:
        """Take note that all of the log is read."""
        self.is_flooded = self.begins = False
        self._until = self._behind = None
        self._growing = 0
