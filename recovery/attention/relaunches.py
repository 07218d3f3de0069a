"""Decides whether a job that was relaunched after a fault has recovered, and says what shows it."""

from __future__ import annotations

from collections.abc import Sequence

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.state import JobState

NOT_KNOWN = "whether it recovers is not known yet"


def has_recovered(job: Job, attempts: Sequence[Attempt]) -> bool:
    """Tell whether it learns again, or has finished. A person's retry is a new try, and what is not shown is a no."""
    runs = _runs(job, attempts)
    if job.state is JobState.FAILED or not any(each.after_fault and not each.by_person for each in runs):
        return False
    last = runs[-1]
    if last.fault is not None:
        return False
    return last.recovered if last.verdict is not None else job.state is JobState.SUCCEEDED


def what_shows_it(job: Job, attempts: Sequence[Attempt]) -> str:
    """Return what is known of the last run: the readings, or that it is too early; empty: its state says everything."""
    runs = _runs(job, attempts)
    last = runs[-1] if runs and job.state is not JobState.FAILED else None
    if last is not None and last.verdict is not None and last.fault is None:
        return last.verdict_why if last.recovered else f"{last.verdict.replace('_', ' ')}: {last.verdict_why}"
    return "" if job.ended else NOT_KNOWN


def _runs(job: Job, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the job's own runs of this try."""
    return [each for each in main_line(attempts) if each.number > job.settled]
