"""Collects the numbers of a log by their names, each with its line and step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rung.recovery.doubts.columns import Columns
from rung.recovery.doubts.names import Column, column
from rung.recovery.logs.line_reader import LineReader, without_rank
from rung.recovery.logs.lines import Line
from rung.recovery.logs.step_count import EpochsBeginAgain

# Steps go by these names, the best first.
_STEP_NAMES = ("step", "iter", "iteration", "update", "it", "minibatch", "batch", "epoch", "ep", "episode")


class Point(NamedTuple):
    value: float
    step: int | None
    line: Line

    @property
    def at(self) -> str:
        return f"step {self.step}" if self.step is not None else f"line {self.line.number}"


@dataclass
class Series:
    """The values under one name, in the order of the log."""

    name: str
    what: Column
    # Whether this is the first number of its lines that is no step and no setting.
    leads: bool
    points: list[Point] = field(default_factory=list)

    @property
    def values(self) -> list[float]:
        return [point.value for point in self.points]

    @property
    def finite(self) -> list[Point]:
        return [point for point in self.points if math.isfinite(point.value)]


def collect(lines: Iterable[Line]) -> list[Series]:
    """Return the series of a log, without those that count or time something.

    Ranks have series of their own, and so has each run where epochs begin again.
    """
    found: dict[tuple[int, str, str], Series] = {}
    columns, reader, epochs, run = Columns(), LineReader(), EpochsBeginAgain(), 0
    for line in lines:
        text = without_rank(line.text)
        rank = line.text[: len(line.text) - len(text)]
        reading = reader.read(line.text)
        named: list[tuple[str, float]] = [*columns.read(text)]
        if reading is not None and reading.loss is not None and not _has_loss(named):
            named.insert(0, (reading.loss_name.lower() or "loss", reading.loss))
        if _has_loss(named) and epochs.begin_again(line.text):
            run += 1
        step = reading.step if reading is not None and reading.step is not None else _step(named)
        leading = True
        for name, value in named:
            what = column(name)
            if what is Column.STEP:
                continue
            series = found.setdefault((run, rank, name), Series(name, what, leading))
            leading = leading and what in (Column.LR, Column.SCALE, Column.NORM)
            last = series.points[-1] if series.points else None
            # A bar that was drawn again shows the same number.
            if last is None or last.value != value or (step is not None and step != last.step):
                series.points.append(Point(value, step, line))
    return list(found.values())


def _has_loss(named: Iterable[tuple[str, float]]) -> bool:
    return any(column(name) in (Column.LOSS, Column.RIVAL) for name, _ in named)


def _step(named: Iterable[tuple[str, float]]) -> int | None:
    counts = {name.split()[-1]: value for name, value in named}
    for name in _STEP_NAMES:
        if name in counts and counts[name].is_integer() and counts[name] >= 0:
            return int(counts[name])
    return None
