"""Builds the data of `history --json` from the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt, Job, Outcome, goes_on_after, main_line
from rung.jobs.model.knobs import not_taken
from rung.jobs.model.paths import AttemptPaths, HomePaths
from rung.jobs.model.saturation import Saturation
from rung.runner.series.read import attempt_series, stored_series
from rung.runner.state.codec import attempt_to_dict, finite_or_text
from rung.runner.state.store import Store
from rung.runner.views.costs import (
    busy_seconds,
    gpu_count,
    gpu_seconds,
    runs_until,
    seconds_lost,
    seconds_run,
    steps_lost,
    steps_made,
)
from rung.runner.views.queue import job_row
from rung.runner.views.times import iso_utc


def history(store: Store, job: Job, paths: HomePaths, now: float) -> dict[str, Any]:
    """Return a job with its attempts and its events."""
    attempts = store.attempts(job.id)
    following = [_goes_on_in(attempt, attempts) for attempt in attempts]
    before = [_goes_on_from(attempt, attempts) for attempt in attempts]
    until = runs_until(job, now)
    rows = [
        {**_attempt_row(job, attempt, previous, paths), **_cost(attempt, after, attempts, until)}
        for previous, attempt, after in zip(before, attempts, following, strict=True)
    ]
    events = [
        {"seq": e.seq, "at": e.at, "attempt": e.attempt, "kind": e.kind, "data": dict(e.data)}
        for e in store.events(job.id)
    ]
    knobs = {"knobs": job.knobs.to_dict(), "success": job.shown.success, "knob_mode": job.shown.knob_mode}
    about = {**job_row(job, attempts, now), **knobs, "python": store.python(job.id)}
    return {"summary": _summary(job, attempts, rows, until), "job": about, "attempts": rows, "events": events}


def _cost(attempt: Attempt, after: Attempt | None, attempts: Sequence[Attempt], until: float) -> dict[str, Any]:
    """Return when an attempt ran and what it cost."""
    lost = steps_lost(attempt, after, attempts)
    return {
        "started": iso_utc(attempt.started_at),
        "ended": iso_utc(attempt.ended_at),
        "seconds": seconds_run(attempt, until),
        "steps_made": steps_made(attempt),
        "steps_lost": lost,
        "seconds_lost": seconds_lost(attempt, after, lost),
        "gpu_seconds": gpu_seconds(attempt, until),
    }


def _summary(job: Job, attempts: Sequence[Attempt], rows: Sequence[dict[str, Any]], until: float) -> dict[str, Any]:
    """Return the result and the cost of a whole job; trials count in it."""
    return {
        "result": job.state.value,
        "attempts": len(attempts),
        "trials": sum(attempt.is_trial for attempt in attempts),
        "interruptions": sum(attempt.outcome is Outcome.INTERRUPTED for attempt in attempts),
        "seconds": busy_seconds(attempts, until),
        "steps_made": sum(row["steps_made"] for row in rows),
        "steps_lost": sum(row["steps_lost"] for row in rows),
        "gpus": max(map(gpu_count, attempts), default=0),
        "gpus_asked": next((each.gpus_asked for each in reversed(attempts) if each.gpus_asked), None),
        "gpu_seconds": round(sum(row["gpu_seconds"] for row in rows), 1),
        "submitted": iso_utc(job.created_at),
        "ended": iso_utc(job.updated_at) if job.ended else None,
    }


def _attempt_row(job: Job, attempt: Attempt, previous: Attempt | None, paths: HomePaths) -> dict[str, Any]:
    before = previous.asked if previous else job.shown.knobs
    ignored = not_taken(attempt.asked, attempt.effective)
    fault = attempt.fault.to_dict() if attempt.fault else None
    return {
        **attempt_to_dict(attempt),
        "changed": {name: list(pair) for name, pair in attempt.asked.changes_from(before).items()},
        "not_taken": {name: {"asked": asked, "effective": live} for name, (asked, live) in ignored.items()},
        "not_resumed": attempt.not_resumed,
        "saturation": _saturation(attempt.saturation),
        "fault": {**fault, "fault": fault["kind"]} if fault else None,
        "skipped": [{"rung": rung, "reason": reason} for rung, reason in attempt.skipped],
        "undone": [{"rung": rung, "reason": reason} for rung, reason in attempt.undone],
        "recovered": attempt.recovered or None,
        "interrupted": _why_interrupted(attempt),
        "goes_on": goes_on_after(previous) and not attempt.by_person,
        "log": str(paths.attempt(job.id, attempt.number).log),
    }


def _why_interrupted(attempt: Attempt) -> str | None:
    if attempt.outcome is not Outcome.INTERRUPTED:
        return None
    # Imported only here: it comes with all that decides, which takes longer to load than a history.
    from rung.recovery.interruption.interruption import why_interrupted

    return why_interrupted(attempt.ended_by)


def _saturation(found: Saturation | None) -> dict[str, Any] | None:
    return {**found.to_dict(), "share": found.share, "warning": found.warning} if found else None


def with_series(data: dict[str, Any], job: Job | None = None) -> dict[str, Any]:
    """Return a history with the series of every attempt for a plot; `job`: its rules find what its log says."""
    return {**data, "attempts": [{**row, "series": _series(row, job)} for row in data["attempts"]]}


def _series(row: dict[str, Any], job: Job | None) -> list[dict[str, Any]]:
    paths = AttemptPaths(Path(row["log"]).parent)
    series = stored_series(paths)
    if series is None:
        series = attempt_series(paths, job.spec.recovery.rules if job else (), ended=row["ended_at"] is not None)
    return [finite_or_text(point._asdict()) for point in series.points() if point.loss is not None]


def _goes_on_from(attempt: Attempt, attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the job's own run that this attempt changes; each of several trials changes the same one."""
    return next((each for each in reversed(main_line(attempts)) if each.number < attempt.number), None)


def _goes_on_in(attempt: Attempt, attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt that goes on from this one: the next of the job's own runs."""
    return next((each for each in main_line(attempts) if each.number > attempt.number), None)
