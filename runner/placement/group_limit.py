"""Holds back jobs of a group while as many of them run as `rung launch --at-once` allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rung.jobs.job import Job
from rung.jobs.model.state import JobState
from rung.runner.context import Context
from rung.runner.state.group_rows import Membership


def hold_back(context: Context, jobs: Sequence[Job]) -> set[str]:
    """Return the jobs that wait for others of their group, which they show as their reason."""
    store = context.store
    groups = store.groups(limited=True) if any(_waits(job) for job in jobs) else {}
    if not groups:
        return set()
    # As they are in the store: some have been launched or have ended in this turn.
    fresh = [job for job in (store.job(each.id) for each in jobs if each.id in groups) if not job.ended]
    held = held_back(fresh, groups)
    for job in fresh:
        if job.id in held:
            context.set_reason(job, held[job.id])
    return set(held)


def held_back(jobs: Sequence[Job], groups: Mapping[str, Membership]) -> dict[str, str]:
    """Return the queued jobs that must wait for others of their group, each with the reason.

    `jobs` are all active ones, oldest first. A job that recovers keeps its place. Those of higher priority go first.
    """
    limits = {member.group: member.at_once for member in groups.values() if member.at_once is not None}
    reasons: dict[str, str] = {}
    for group, limit in limits.items():
        ours = [job for job in jobs if job.id in groups and groups[job.id].group == group]
        # A job that is being cancelled, or that cannot be launched any more, takes no place.
        queued = [job for job in ours if _waits(job) and not job.cancel_requested and not job.refused]
        running = sum(not _waits(job) for job in ours)
        first = sorted(queued, key=lambda job: -job.spec.priority)
        why = f"waits for its group {group}: {running} of at most {limit} run"
        reasons |= dict.fromkeys((job.id for job in first[max(0, limit - running) :]), why)
    return reasons


def _waits(job: Job) -> bool:
    return job.state is JobState.QUEUED
