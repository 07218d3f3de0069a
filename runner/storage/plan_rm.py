"""Plans what `rung rm` removes: all files of jobs that have ended, in every place. Jobs that are needed are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rung.jobs.job import Job
from rung.jobs.model.errors import EngineError, HostError, UsageError
from rung.runner.context import Context
from rung.runner.storage.layout import MIRROR
from rung.runner.storage.plan import (
    TREES,
    WHOLE,
    Places,
    Plan,
    Removal,
    folders_of_the_user,
    measured,
    starts_of_active_jobs,
)


def refuse_needed(context: Context, job: Job) -> None:
    """Refuse to remove a job that has not ended, that may still run somewhere, or that something waits for."""
    if not job.ended:
        raise UsageError(f"job {job.id} is {job.state}: end it first with `rung cancel {job.id}`")
    for orphan in context.store.orphans():
        if orphan.job_id == job.id:
            raise UsageError(
                f"job {job.id}: attempt {orphan.attempt} may still run on {orphan.host}, which did not answer; "
                "a controller ends it when the host is back, then remove the job"
            )
    for _, _, data in context.store.validations(active=True):
        if job.id in _runs_of(data):
            raise UsageError(f"job {job.id} is part of a validation without a verdict: wait for that, or cancel it")
    for other, name in starts_of_active_jobs(context).get(job.id, ()):
        if not (context.paths.job(other.id) / MIRROR / name).exists():
            raise UsageError(
                f"job {job.id}: {other.id} began with its {name}, has not ended and has no copy of it; "
                f"wait for {other.id}, or cancel it"
            )


def _runs_of(data: dict[str, Any]) -> set[str]:
    return {str(data[key]) for key in ("baseline", "candidate", "of") if data.get(key)}


def plan_rm(context: Context, jobs: Sequence[Job]) -> Plan:
    """Plan for all files of these jobs, and the trees on their hosts that no other job has a copy of."""
    plan = Plan()
    places = Places(context, plan)
    for job in jobs:
        for place in places.of(job):
            plan.kept += folders_of_the_user(job, place)
            try:
                plan.removals += measured(job, place, {WHOLE: ["."]})
            except (EngineError, HostError) as error:
                plan.note(place.where, job.id, error)
    asked = {job.id for job in jobs}
    for host in sorted({host for job in jobs for host in places.on_hosts(job)}):
        _plan_trees(places, plan, host, asked)
    return plan


def _plan_trees(places: Places, plan: Plan, host: str, asked: set[str]) -> None:
    trees = places.trees(host)
    if trees is None:
        return
    listed = {job.id for job in places.context.store.jobs()}
    try:
        ids = tuple(tree.id for tree in trees.list() if tree.jobs & asked and not tree.jobs & listed - asked)
        plan.removals += [Removal(None, host, TREES, ids, trees.disk_use(ids))] if ids else []
    except (EngineError, HostError) as error:
        plan.note(host, TREES, error)
