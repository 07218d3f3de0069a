"""Builds the plot of a job from its attempts and their series: what was kept, what was thrown away, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rung.jobs.job import Attempt, Job
from rung.jobs.model.paths import HomePaths
from rung.recovery.decide.wording import describe_fault
from rung.runner.plots.figure import PANELS, Band, Curve, Figure, Look, Mark, MarkKind, Panel
from rung.runner.series.read import AttemptSeries, attempt_series

# Points of one curve of an attempt; a long job has many attempts.
LIMIT = 400
OWN_RUN = "the job's own run"
Kept = Mapping[int, int | None]
Points = Sequence[tuple[int, float]]
SeriesByAttempt = Mapping[int, AttemptSeries]


def read_series(job: Job, attempts: Sequence[Attempt], paths: HomePaths) -> SeriesByAttempt:
    """Return the series of each attempt; where there is none, its whole log is read."""
    rules = job.spec.recovery.rules
    return {
        each.number: attempt_series(paths.attempt(job.id, each.number), rules, ended=each.ended_at is not None)
        for each in attempts
    }


def job_figure(job: Job, attempts: Sequence[Attempt], series: SeriesByAttempt, *, limit: int = LIMIT) -> Figure:
    """Return the plot of a job. One without a number to show has no panels."""
    kept = kept_until(attempts)
    # Once for all panels: this is most of the work.
    thin = {number: each.thin(limit) for number, each in series.items()}
    panels = [Panel(title, tuple(_curves(name, attempts, thin, kept, limit))) for name, title in PANELS.items()]
    return Figure(
        title=job.spec.name,
        panels=tuple(panel for panel in panels if panel.curves),
        bands=tuple(_bands(attempts, kept)),
        marks=tuple(_marks(attempts)),
        description=f"The curves of {job.id} over its steps, with {len(attempts)} attempts, their faults and rungs",
    )


def runs(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the job's own runs, and the trials that won: the run after such a trial goes on from its checkpoint."""
    return [each for each in attempts if not each.is_trial or (each.trial is not None and each.trial.won)]


def kept_until(attempts: Sequence[Attempt]) -> dict[int, int | None]:
    """Return for each run that the job is made of the step from which a later one ran anew; None: none did."""
    found: dict[int, int | None] = {}
    earliest: int | None = None
    for attempt in reversed(runs(attempts)):
        found[attempt.number] = earliest
        earliest = attempt.resume_point if earliest is None else min(earliest, attempt.resume_point)
    return found


def own_run(attempts: Sequence[Attempt], points: Mapping[int, Points]) -> list[tuple[int, float]]:
    """Return of the points of each attempt those that the job is made of: no resume threw them away."""
    kept = kept_until(attempts)
    return [point for number in sorted(kept) for point in _held(points.get(number, ()), kept[number])]


def _held(points: Points, until: int | None) -> list[tuple[int, float]]:
    return [point for point in points if until is None or point[0] <= until]


def _curves(name: str, attempts: Sequence[Attempt], series: SeriesByAttempt, kept: Kept, limit: int) -> Iterator[Curve]:
    labels = list(dict.fromkeys(_trial_label(each) for each in attempts if each.number not in kept))
    for attempt in attempts:
        points = series[attempt.number].curve(name, limit)
        if not points:
            continue
        if attempt.number not in kept:
            label = _trial_label(attempt)
            yield Curve(label, points, Look.TRIAL, 1 + labels.index(label) % 5, attempt.number)
            continue
        until = kept[attempt.number]
        held = _held(points, until)
        lost = [point for point in points if until is not None and point[0] > until]
        if held:
            yield Curve(OWN_RUN, held, attempt=attempt.number)
        if lost:
            # It begins where the kept part ends, so that the line has no gap.
            yield Curve(f"attempt {attempt.number}, run again", [*held[-1:], *lost], Look.LOST, attempt=attempt.number)


def _trial_label(attempt: Attempt) -> str:
    assert attempt.trial is not None
    return f"trial of {attempt.trial.candidate.label}"


def _bands(attempts: Sequence[Attempt], kept: Kept) -> Iterator[Band]:
    for attempt in runs(attempts):
        until = kept[attempt.number]
        last = attempt.furthest_step if until is None else until
        if last is not None and last > attempt.resume_point:
            name = attempt.rung or ("" if attempt.by_person else "same knobs")
            label = f"{attempt.number} {name}".strip()
            yield Band(label, attempt.resume_point, last, attempt.because)


def _marks(attempts: Sequence[Attempt]) -> Iterator[Mark]:
    """Return the faults and rungs of the job's own runs, in the order they came."""
    said, start = "", None
    for attempt in runs(attempts):
        if attempt.is_trial:
            start = attempt.resume_point  # of the run that goes on from this trial
            continue
        if attempt.rung:
            # The mark before it names the fault.
            why = attempt.because.removeprefix(f"{said}: ") if said else attempt.because
            step = attempt.resume_point if start is None else start
            yield Mark(MarkKind.RUNG, step, f"attempt {attempt.number}: {why}", attempt.started_at)
        start = None
        if attempt.fault is not None:
            said = describe_fault(attempt.fault)
            yield Mark(MarkKind.FAULT, attempt.fault_step, said, attempt.ended_at)
