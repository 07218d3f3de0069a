"""Owns the progress of a run by its own words: steps, latest values, live knobs. Faults are none of its business."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recovery.reading import Reading

# Names kept of a log that prints ever new ones; the oldest goes first.
MAX_VALUES = 256


@dataclass(frozen=True)
class Progress:
    """How far a run is, at one moment."""

    step: int | None = None
    first_step: int | None = None
    furthest_step: int | None = None
    # The latest training loss, finite or not.
    loss: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    effective: Mapping[str, object] = field(default_factory=dict)
    resumed_step: int | None = None
    saved_step: int | None = None


class Track:
    """Follows the readings of one run in bounded memory."""

    def __init__(self) -> None:
        self.step: int | None = None
        # The job speaks in records: its own prints beside them are older or rounder.
        self.has_records = False
        self._first_step: int | None = None
        self._furthest_step: int | None = None
        self._loss: float | None = None
        self._resumed_step: int | None = None
        self._saved_step: int | None = None
        self._values: dict[str, float] = {}
        self._effective: dict[str, object] = {}
        self._largest_total = 0

    def snapshot(self) -> Progress:
        return Progress(
            self.step,
            self._first_step,
            self._furthest_step,
            self._loss,
            dict(self._values),
            dict(self._effective),
            self._resumed_step,
            self._saved_step,
        )

    def store(self, reading: Reading) -> None:
        """Keep what a reading says besides step and loss."""
        if reading.values:
            self._values.update(reading.values)
            while len(self._values) > MAX_VALUES:
                del self._values[next(iter(self._values))]
        # Free text is taken at its word only before the first step: later it may speak of anything.
        if reading.resumed_step is not None and (reading.is_record or self._first_step is None):
            self._resumed_step = reading.resumed_step
        if not reading.is_record:
            return
        self._effective.update(reading.effective)
        if reading.saved_step is not None:
            self._saved_step = reading.saved_step
        self.has_records = self.has_records or reading.loss is not None

    def advance(self, reading: Reading) -> int | None:
        """Move on by a reading and return the step it belongs to."""
        if reading.total is not None:
            # A shorter bar without a loss counts something else, such as an evaluation.
            if reading.loss is None and reading.total < self._largest_total:
                return self.step
            self._largest_total = max(self._largest_total, reading.total)
        if reading.loss is not None:
            self._loss = reading.loss
        if reading.step is not None:
            self._move_to(reading.step)
        return self.step

    def _move_to(self, step: int) -> None:
        self.step = step
        if self._first_step is None:
            self._first_step = step
        if self._furthest_step is None or step > self._furthest_step:
            self._furthest_step = step
