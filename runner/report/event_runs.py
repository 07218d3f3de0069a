"""Sorts the curves of a job into runs for TensorBoard: one of what counted, and one for each part thrown away or tried.

A person who opens a job expects one curve. What a resume threw away and what trials made is still there, as runs of
their own that can be switched off.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rung.jobs.job import Attempt, Job
from rung.jobs.model.terminal_text import clean
from rung.runner.plots.figure import PANELS, Curve, Figure, Look, Mark
from rung.runner.report.curves import SeriesByAttempt, job_figure
from rung.runner.series.read import AttemptSeries

OWN = "run"
# All that the series has: nobody draws these points here.
LIMIT = 1_000_000
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class EventRun:
    """One run: its name, which is the path of its folder, its numbers and its texts, each with its step and time."""

    name: str
    scalars: list[tuple[str, int, float, float]] = field(default_factory=list)
    texts: list[tuple[str, int, str, float]] = field(default_factory=list)


def event_runs(job: Job, attempts: Sequence[Attempt], series: SeriesByAttempt) -> list[EventRun]:
    """Return the runs of a job, that of what counted first; none if no attempt has shown a number."""
    figure = job_figure(job, attempts, series, limit=LIMIT)
    clocks = {each.number: StepClock(series[each.number], each.started_at or job.created_at) for each in attempts}
    runs: dict[str, EventRun] = {}
    for tag, curve in _tagged(figure):
        assert curve.attempt is not None
        run, clock = runs.setdefault(_name(curve), EventRun(_name(curve))), clocks[curve.attempt]
        run.scalars.extend((tag, step, value, clock.at(step)) for step, value in curve.points)
    if runs:
        own = runs.setdefault(OWN, EventRun(OWN))
        own.texts.extend(
            (mark.kind.value, mark.step, _as_code(mark), mark.at or job.updated_at) for mark in figure.marks
        )
    return sorted(runs.values(), key=lambda run: (run.name != OWN, run.name))


def _tagged(figure: Figure) -> Iterator[tuple[str, Curve]]:
    tags = {title: tag for tag, title in PANELS.items()}
    return ((tags[panel.title], curve) for panel in figure.panels for curve in panel.curves)


def _name(curve: Curve) -> str:
    if curve.look is Look.OWN:
        return OWN
    if curve.look is Look.LOST:
        return f"thrown-away/attempt-{curve.attempt}"
    return f"trials/attempt-{curve.attempt}-{NOT_IN_NAMES.sub('-', curve.name.removeprefix('trial of '))}"


def _as_code(mark: Mark) -> str:
    """Return the sentence as a block of code: TensorBoard reads Markdown, and a log may hold pictures and links."""
    return f"    {clean(mark.sentence)}"


class StepClock:
    """When the steps of an attempt were read, as far as it is known."""

    def __init__(self, series: AttemptSeries, began: float) -> None:
        known = sorted((row.last_step, row.at) for row in series.rows if row.at is not None)
        self._steps, self._times, self._began = [step for step, _ in known], [at for _, at in known], began

    def at(self, step: int) -> float:
        """Return the time of a step: of the reading that has it, else of the one before; the begin where none has."""
        if not self._times:
            return self._began
        return self._times[min(bisect_left(self._steps, step), len(self._times) - 1)]
