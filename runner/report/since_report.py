"""Builds the report of a span of time: what ended, what recovered and how, what was lost, what needs a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rung.jobs.job import Job
from rung.jobs.model.event import EventKind
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.terminal_text import clean
from rung.recovery.attention.needs import find_needs, most_urgent_first, set_aside
from rung.runner.plots.templates import environment
from rung.runner.report.summary import percent, recoveries, summary_line
from rung.runner.state.store import Store
from rung.runner.views.history import history
from rung.runner.views.times import local_time, with_since

HERE = Path(__file__).parent
Data = Mapping[str, Any]


@dataclass(frozen=True)
class SinceReport:
    """The sentences of the report."""

    since: float
    until: float
    ended: tuple[str, ...]
    # Jobs that were relaunched after a fault, ended or not.
    recovered: tuple[str, ...]
    needs_person: tuple[str, ...]
    lost: str

    @property
    def line(self) -> str:
        """Return the first line, which can be pasted into a chat."""
        counts = [
            f"{_count(len(self.ended), 'job')} ended",
            f"{len(self.recovered)} recovered",
            f"{len(self.needs_person)} need a person" if len(self.needs_person) != 1 else "1 needs a person",
        ]
        return f"since {local_time(self.since)}: {', '.join(counts)}; {self.lost}"


def since_report(store: Store, paths: HomePaths, since: float, now: float) -> SinceReport:
    """Return the report of all jobs about what happened since then."""
    jobs = [job for job in store.jobs() if not job.ended or job.updated_at >= since]
    found = [(job, history(store, job, paths, now)) for job in jobs]
    lines = {job.id: f"{job.id}: {summary_line(data)}" for job, data in found}
    fresh = [(job, data) for job, data in found if recoveries(_launched_since(data, since))]
    return SinceReport(
        since=since,
        until=now,
        ended=tuple(lines[job.id] for job, _ in found if job.ended),
        recovered=tuple(f"{job.id}: {', '.join(recoveries(_launched_since(data, since)))}" for job, data in fresh),
        needs_person=tuple(_needs(store, found, now)),
        lost=_lost([row for _, data in found for row in data["attempts"] if (row["ended_at"] or now) >= since]),
    )


def _launched_since(data: Data, since: float) -> list[Data]:
    return [row for row in data["attempts"] if (row["started_at"] or since) >= since]


def _needs(store: Store, found: Sequence[tuple[Job, Data]], now: float) -> Iterator[str]:
    """Yield a line for everything that a person has to look at, the most urgent first."""
    needs = [need for job, data in found for need in find_needs(job, store.attempts(job.id), _waits(data))]
    for need in most_urgent_first([*needs, *set_aside(store.bad_places(now))]):
        yield f"{need.job} {need.kind}: {with_since(need.why, need.since)}"


def _waits(data: Data) -> dict[int, float]:
    waits = [event for event in data["events"] if event["kind"] == EventKind.WAITING_FOR_HOST]
    return {event["attempt"] or 0: event["at"] for event in reversed(waits)}


def _lost(rows: Sequence[Data]) -> str:
    """Return what was lost to faults and trials: steps, their share, and GPU-hours where GPUs were leased."""
    made, lost = (sum(row[name] for row in rows) for name in ("steps_made", "steps_lost"))
    if not made:
        return "no steps were made"
    gpu = sum((row["seconds_lost"] or 0.0) * len(row["gpus"]) for row in rows) / 3600
    hours = f", {gpu:.3g} GPU-hours" if any(row["gpus"] for row in rows) else ""
    return f"{lost:,} of {made:,} steps run again ({percent(lost / made)}){hours}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def since_text(report: SinceReport) -> str:
    """Return the report for a terminal."""
    lines = [report.line]
    for title, found in _parts(report):
        lines += ["", title, *(f"  {clean(text)}" for text in found or ["nothing"])]
    return "\n".join(lines)


def since_page(report: SinceReport) -> str:
    """Return the report as HTML."""
    template = environment(HERE).get_template("since.html.j2")
    return template.render(line=report.line, parts=_parts(report), made=local_time(report.until))


def _parts(report: SinceReport) -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("Needs a person", report.needs_person),
        ("Recovered", report.recovered),
        ("Ended", report.ended),
        ("Lost", (report.lost,)),
    ]
