"""Tells which progress bar of a log is that of the training: the one during which losses come."""

from __future__ import annotations

from collections.abc import Mapping

from rung.recovery.logs.reading import Reading

# A log has few bars; the totals of more than this are not remembered.
MAX_TOTALS = 16
# Where a training bar is known, so many losses make another one: a record of the training may come late, below the bar
# of an evaluation.
LOSSES_FOR_ANOTHER = 4
_NO_SPEED: Mapping[str, float] = {}


class TrainingBar:
    """Remembers the totals of the bars that were open when losses came."""

    def __init__(self) -> None:
        # The total of the bar that is open.
        self.open_total: int | None = None
        self._losses: dict[int, int] = {}

    def __contains__(self, total: int) -> bool:
        others = len(self._losses) - (total in self._losses)
        return self._losses.get(total, 0) >= (LOSSES_FOR_ANOTHER if others else 1)

    def see(self, reading: Reading) -> Mapping[str, float]:
        """Take one reading; return its speed where that is the speed of the training."""
        if reading.loss is not None:
            self._count(self.open_total if reading.total is None else reading.total)
            return reading.throughput
        if reading.total is None:
            # A bar without a total: it counts what nobody knows.
            return _NO_SPEED if reading.in_epoch else reading.throughput
        # A bar that is full is closed.
        self.open_total = reading.total if (reading.step or 0) < reading.total else None
        return reading.throughput if reading.total in self else _NO_SPEED

    def _count(self, total: int | None) -> None:
        if total is not None and (total in self._losses or len(self._losses) < MAX_TOTALS):
            self._losses[total] = self._losses.get(total, 0) + 1
