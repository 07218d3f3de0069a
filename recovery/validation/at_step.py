"""Reads what a run had reached at a step, so that runs of different length can be compared."""

from __future__ import annotations

from rung.recovery.logs.line_reader import LineReader
from rung.recovery.logs.lines import Line
from rung.recovery.logs.progress import ProgressTracker
from rung.recovery.logs.unwrap import Unwrapper


class StepReader:
    """Reads one log, line by line, and keeps the last loss and the last value of a metric up to a step."""

    def __init__(self, until: int, metric: str | None) -> None:
        self._until, self._metric = until, metric
        self._unwrapper, self._reader, self._track = Unwrapper(), LineReader(), ProgressTracker()
        # The step at which each was read, and the value.
        self.loss: tuple[int, float] | None = None
        self.measured: tuple[int, float] | None = None

    def feed(self, line: Line) -> None:
        reading = self._reader.read(self._unwrapper.join_wrapped(line.text))
        if reading is None:
            return
        self._track.store(reading)
        is_late = self._track.has_records and not reading.is_record
        step = self._track.step if is_late else self._track.advance(reading)
        if step is None or step > self._until:
            return
        if reading.loss is not None and not is_late and not self._track.redrawn:
            self.loss = step, reading.loss
        if self._metric is not None and self._metric in reading.values:
            self.measured = step, reading.values[self._metric]
