"""Finds the jobs that wait for a person, or soon may: failed, without their host, near the end of their ladder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.state import JobState
from rung.jobs.model.terminal_text import clean
from rung.runner.views.times import age_text
from rung.runner.web.reading import ReadStore

# A failure that nobody has looked at for so long is no news; the list of failed jobs still has it.
RECENT_SECONDS = 7 * 86_400.0
MOST_FAILED = 10
# Jobs that run at the same time; more than these are not examined for one page.
MOST_ACTIVE = 200
STARTED = (JobState.LAUNCHING, JobState.RUNNING, JobState.RECOVERING, JobState.STOPPING)


@dataclass(frozen=True)
class Need:
    """Why a job needs a person: one word for the kind, one sentence for the reason."""

    job: str
    kind: str
    why: str


def find_needs(store: ReadStore, now: float) -> list[Need]:
    """Return what needs a person, the most urgent kind first."""
    active = store.job_page([state.value for state in STARTED], MOST_ACTIVE, 0)
    ids = [job.id for job in active]
    attempts, waiting = store.attempts_of(ids), store.waiting_attempts(ids)
    away = [need for job in active if (need := _without_host(job, attempts[job.id], waiting, now))]
    near = [need for job in active if (need := _near_end(job, attempts[job.id]))]
    return [*_failed(store, now), *away, *near]


def _failed(store: ReadStore, now: float) -> list[Need]:
    newest = store.job_page([JobState.FAILED.value], MOST_FAILED, 0)
    return [Need(job.id, "failed", job.reason) for job in newest if now - job.updated_at < RECENT_SECONDS]


def _without_host(job: Job, attempts: Sequence[Attempt], waiting: set[tuple[str, int]], now: float) -> Need | None:
    last = attempts[-1] if attempts else None
    if last is None:
        return None
    if last.unreachable_since is not None:
        why = f"{last.host} has not answered for {age_text(now - last.unreachable_since)}"
        return Need(job.id, "waiting for a host", clean(why))
    if job.state is JobState.RECOVERING and (job.id, last.number) in waiting:
        return Need(job.id, "waiting for a host", job.reason)
    return None


def _near_end(job: Job, attempts: Sequence[Attempt]) -> Need | None:
    """Tell that the next fault may be the last one that Rung can do something about."""
    runs = [each for each in main_line(attempts) if each.number > job.settled]
    if not runs or not any(each.fault for each in runs):
        return None
    last, rungs = runs[-1], job.spec.recovery.rungs
    if last.rung and rungs and last.rung == rungs[-1].rung:
        return Need(job.id, "ladder near its end", f"{last.rung} is the last rung of its ladder")
    if len(runs) >= job.spec.recovery.max_attempts:
        return Need(job.id, "ladder near its end", f"this is launch {len(runs)}, the last that max_attempts allows")
    return None
