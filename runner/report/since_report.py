"""Builds the report of a span of time: what ended, what recovered and how, what was lost, what needs a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.event import EventKind
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.terminal_text import clean
from rung.recovery.attention.needs import Need, find_needs, most_urgent_first, set_aside
from rung.recovery.attention.relaunches import has_recovered, what_shows_it
from rung.runner.plots.templates import environment
from rung.runner.report.summary import how_it_went, percent, recoveries, summary_line
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
    # Jobs that were relaunched after a fault, ended or not: those that learn again or have finished, and the others.
    recovered: tuple[str, ...]
    other_relaunches: tuple[str, ...]
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


@dataclass(frozen=True)
class _Found:
    """What is known of one job."""

    job: Job
    attempts: Sequence[Attempt]
    data: Data
    needs: Sequence[Need]

    @property
    def recovered(self) -> bool:
        return has_recovered(self.job, self.attempts)


def since_report(store: Store, paths: HomePaths, since: float, now: float) -> SinceReport:
    """Return the report of all jobs about what happened since then."""
    jobs = [job for job in store.jobs() if not job.ended or job.updated_at >= since]
    found = [_look_at(store, job, history(store, job, paths, now)) for job in jobs]
    rungs = {each.job.id: recoveries(_launched_since(each.data, since)) for each in found}
    relaunched = [(each, _relaunch_line(each, rungs[each.job.id])) for each in found if rungs[each.job.id]]
    rows = [row for each in found for row in each.data["attempts"]]
    return SinceReport(
        since=since,
        until=now,
        ended=tuple(f"{each.job.id}: {summary_line(each.data)}" for each in found if each.job.ended),
        recovered=tuple(line for each, line in relaunched if each.recovered),
        other_relaunches=tuple(line for each, line in relaunched if not each.recovered),
        needs_person=tuple(_need_lines(found, set_aside(store.bad_places(now)))),
        lost=_lost([row for row in rows if (row["ended_at"] or now) >= since]),
    )


def _look_at(store: Store, job: Job, data: Data) -> _Found:
    attempts = store.attempts(job.id)
    return _Found(job, attempts, data, find_needs(job, attempts, _waits(data)))


def _launched_since(data: Data, since: float) -> list[Data]:
    return [row for row in data["attempts"] if (row["started_at"] or since) >= since]


def _relaunch_line(found: _Found, rungs: Sequence[str]) -> str:
    """Return the rungs that were taken since then, what became of the job, and whether it needs a person."""
    shown = what_shows_it(found.job, found.attempts)
    went = how_it_went(found.data)
    person = "; it needs a person" if found.needs else ""
    return f"{found.job.id}: {', '.join(rungs)}; {f'{went}: {shown}' if shown else went}{person}"


def _need_lines(found: Sequence[_Found], of_hosts: Iterable[Need]) -> Iterator[str]:
    """Yield a line for everything that a person has to look at, the most urgent first."""
    for need in most_urgent_first([*(need for each in found for need in each.needs), *of_hosts]):
        yield f"{need.job} {need.kind}: {with_since(need.why, need.since)}"


def _waits(data: Data) -> dict[int, float]:
    waits = [event for event in data["events"] if event["kind"] == EventKind.WAITING_FOR_HOST]
    return {event["attempt"] or 0: event["at"] for event in reversed(waits)}


def _lost(rows: Sequence[Data]) -> str:
    """Return what was lost to faults and trials: steps, their share, and GPU-hours where GPUs were leased."""
    made, lost = (sum(row[name] for row in rows) for name in ("steps_made", "steps_lost"))
    if not made:
        return "no steps were made"
    gpu = sum((row["seconds_lost"] or 0.0) * len(row["gpus"]) * row["nodes"] for row in rows) / 3600
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
    bad = bool(report.needs_person)
    return template.render(line=report.line, bad=bad, parts=_parts(report), made=local_time(report.until))


def _parts(report: SinceReport) -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("Needs a person", report.needs_person),
        ("Recovered", report.recovered),
        ("Other relaunches", report.other_relaunches),
        ("Ended", report.ended),
        ("Lost", (report.lost,)),
    ]
