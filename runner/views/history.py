"""Builds the data of `queue --json` and `history --json` from the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.errors import EngineError
from rung.jobs.model.knobs import not_taken
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.saturation import Saturation
from rung.recovery.validation.run_figures import FigureReader
from rung.runner.files.log_file import read_lines
from rung.runner.state.codec import attempt_to_dict, finite_or_text
from rung.runner.state.store import Store


def queue(store: Store) -> list[dict[str, Any]]:
    """Return every job with its state, oldest first."""
    return [_job_row(job, store.attempts(job.id)) for job in store.jobs()]


def _job_row(job: Job, attempts: Sequence[Attempt]) -> dict[str, Any]:
    last = attempts[-1] if attempts else None
    return {
        "id": job.id,
        "name": job.spec.name,
        "state": job.state.value,
        "reason": job.reason,
        "host": last.host if last else None,
        "gpus": [gpu.name for gpu in last.gpus] if last else [],
        "image": last.image if last else None,
        "priority": job.spec.priority,
        "step": max((a.furthest_step for a in attempts if a.furthest_step is not None), default=None),
        "loss": finite_or_text(last.loss) if last else None,
        "recoveries": sum(not attempt.by_person for attempt in main_line(attempts)),
        "attempt": last.number if last else None,
        "verdict": last.verdict if last else None,
        "submitted_at": job.created_at,
        "updated_at": job.updated_at,
    }


def history(store: Store, job: Job, paths: HomePaths) -> dict[str, Any]:
    """Return a job with its attempts and its events."""
    attempts = store.attempts(job.id)
    following = [_goes_on_in(attempt, attempts) for attempt in attempts]
    before = [_goes_on_from(attempt, attempts) for attempt in attempts]
    rows = [
        _attempt_row(job, attempt, previous, after, paths)
        for previous, attempt, after in zip(before, attempts, following, strict=True)
    ]
    events = [
        {"seq": e.seq, "at": e.at, "attempt": e.attempt, "kind": e.kind, "data": dict(e.data)}
        for e in store.events(job.id)
    ]
    knobs = {"knobs": job.knobs.to_dict(), "success": job.spec.success.model_dump() if job.spec.success else None}
    return {"job": {**_job_row(job, attempts), **knobs}, "attempts": rows, "events": events}


def _attempt_row(
    job: Job, attempt: Attempt, previous: Attempt | None, after: Attempt | None, paths: HomePaths
) -> dict[str, Any]:
    before = previous.asked if previous else job.spec.knobs.knobs()
    ignored = not_taken(attempt.asked, attempt.effective)
    lost = steps_lost(attempt, after)
    fault = attempt.fault.to_dict() if attempt.fault else None
    return {
        **attempt_to_dict(attempt),
        "changed": {name: list(pair) for name, pair in attempt.asked.changes_from(before).items()},
        "not_taken": {name: {"asked": asked, "effective": live} for name, (asked, live) in ignored.items()},
        "saturation": _saturation(attempt.saturation),
        "fault": {**fault, "fault": fault["kind"]} if fault else None,
        "skipped": [{"rung": rung, "reason": reason} for rung, reason in attempt.skipped],
        "undone": [{"rung": rung, "reason": reason} for rung, reason in attempt.undone],
        "recovered": attempt.recovered or None,
        "steps_lost": lost,
        "seconds_lost": seconds_lost(attempt, after, lost),
        "log": str(paths.attempt(job.id, attempt.number).log),
    }


def _saturation(found: Saturation | None) -> dict[str, Any] | None:
    return {**found.to_dict(), "share": found.share, "warning": found.warning} if found else None


def with_series(data: dict[str, Any]) -> dict[str, Any]:
    """Return a history with the series of every attempt for a plot, read from its log."""
    return {**data, "attempts": [{**row, "series": _series(Path(row["log"]))} for row in data["attempts"]]}


def _series(log: Path) -> list[dict[str, Any]]:
    reader = FigureReader()
    try:
        for line in read_lines(log):
            reader.feed(line)
    except EngineError:
        # The history has no curve then.
        return []
    return [finite_or_text(point._asdict()) for point in reader.figures().points]


def _goes_on_from(attempt: Attempt, attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the job's own run that this attempt changes; each of several trials changes the same one."""
    return next((each for each in reversed(main_line(attempts)) if each.number < attempt.number), None)


def _goes_on_in(attempt: Attempt, attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt that goes on from this one: the next of the job's own runs."""
    return next((each for each in main_line(attempts) if each.number > attempt.number), None)


def steps_lost(attempt: Attempt, after: Attempt | None) -> int:
    """Return how many steps of this attempt the next one had to run again."""
    if attempt.is_trial and attempt.trial is not None and not attempt.trial.won:
        return max(0, (attempt.furthest_step or 0) - attempt.resume_point)
    if after is None or attempt.furthest_step is None:
        return 0
    return max(0, attempt.furthest_step - after.resume_point)


def seconds_lost(attempt: Attempt, after: Attempt | None, lost: int) -> float | None:
    """Return the time of these steps plus the time until the next progress; None if it is not known."""
    if after is None:
        return 0.0
    if after.progress_at is None or attempt.ended_at is None:
        return None
    spent = 0.0
    if attempt.progress_at is not None and attempt.furthest_step and attempt.first_step is not None:
        done = max(1, attempt.furthest_step - attempt.first_step)
        spent = lost * (attempt.ended_at - attempt.progress_at) / done
    return round(max(0.0, spent) + max(0.0, after.progress_at - attempt.ended_at), 1)
