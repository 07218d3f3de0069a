"""Chooses the jobs that the page examines for what needs a person."""

from __future__ import annotations

from rung.jobs.model.state import JobState
from rung.recovery.attention.needs import STARTED, Need, find_needs, most_urgent_first
from rung.runner.web.reading import ReadStore

# A failure that nobody has looked at for so long is no news; the list of failed jobs still has it.
RECENT_SECONDS = 7 * 86_400.0
MOST_FAILED = 10
# Jobs that run at the same time; more than these are not examined for one page.
MOST_ACTIVE = 200


def needs_now(store: ReadStore, now: float) -> list[Need]:
    """Return what needs a person in the newest jobs, the most urgent first."""
    ended = store.job_page([JobState.FAILED.value], MOST_FAILED, 0)
    jobs = [job for job in ended if now - job.updated_at < RECENT_SECONDS]
    jobs += store.job_page([state.value for state in STARTED], MOST_ACTIVE, 0)
    ids = [job.id for job in jobs]
    attempts, waits = store.attempts_of(ids), store.waits_for_hosts(ids)
    return most_urgent_first(need for job in jobs for need in find_needs(job, attempts[job.id], waits[job.id]))
