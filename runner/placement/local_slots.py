"""Shares out the slots of this machine among the jobs without an image.

A job that requests GPUs waits until they are free. A job that requests none takes one of a number of slots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rung.jobs.job import Job
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.context import Context
from rung.runner.hosts.survey import Report
from rung.runner.hosts.this_machine import HERE, max_parallel, why_no_gpu
from rung.runner.placement.bad_gpus import BadGpus
from rung.runner.placement.host_pool import SURVEY_SECONDS, view_of
from rung.runner.placement.places import GpuKey, HostView, PlacementResult, WaitingJob
from rung.runner.placement.scheduler import place
from rung.runner.state.store import Store

SURVEY_KEY = "this machine"


class LocalSlots:
    def __init__(self, context: Context, bad_gpus: BadGpus) -> None:
        self._context, self._limit, self._bad_gpus = context, max_parallel(context.environ), bad_gpus
        self._report: Report | None = None
        self._surveyed_at = -math.inf

    def results(self, waiting: Sequence[Job], jobs: Sequence[Job]) -> list[tuple[Job, PlacementResult]]:
        """Return a result for the jobs of `waiting`; none for a job with GPUs while the GPUs are looked at."""
        # Asked once for all of them, so that no job overtakes another.
        surveyed = any(job.spec.resources.gpu for job in waiting) and self._is_surveyed()
        asked = [job for job in waiting if surveyed or not job.spec.resources.gpu]
        if not asked:
            return []
        store = self._context.store
        (gpus,) = self._bad_gpus.mark([gpu_view(self._report)])
        views = (gpus, slot_view(self._limit, used_slots(store, jobs)))
        bad = self._bad_gpus.now()
        requests = [self._bad_gpus.for_job(waiting_here(job.spec, job.id), job, bad) for job in asked]
        found = place_here(requests, views, leases_of(store))
        return list(zip(asked, found, strict=True))

    def _is_surveyed(self) -> bool:
        """Tell whether the GPUs are known as they are now; otherwise have them surveyed."""
        tasks, context = self._context.tasks, self._context
        task = tasks.take(SURVEY_KEY)
        if task is not None:
            self._report, self._surveyed_at = task.future.result(), context.steady()
        if context.steady() - self._surveyed_at < SURVEY_SECONDS:
            return True
        if not tasks.busy(SURVEY_KEY):
            tasks.submit(SURVEY_KEY, HERE.name, context.engines.survey_here)
        return False


def waiting_here(spec: JobSpec, job_id: str) -> WaitingJob:
    return WaitingJob(job_id, spec.resources.gpu, None, spec.priority)


def used_slots(store: Store, jobs: Sequence[Job]) -> int:
    """Return how many of these active jobs run on this machine without a GPU; one that recovers keeps its slot."""
    here = [job for job in jobs if not job.spec.is_remote and job.state is not JobState.QUEUED]
    return sum(not store.attempts(job.id)[-1].gpus for job in here)


def leases_of(store: Store) -> dict[GpuKey, str]:
    return {(lease.host, lease.gpu): lease.job_id for lease in store.leases()}


def gpu_view(report: Report | None) -> HostView:
    """Return this machine as jobs with GPUs see it."""
    if report is None:
        return HostView(HERE)
    trouble = "" if report.gpus else f"has no GPU to give ({why_no_gpu(report)})"
    return replace(view_of(report), trouble=trouble)


def slot_view(limit: int, used: int) -> HostView:
    """Return this machine as jobs without a GPU see it."""
    return HostView(HERE, load=used, limit=limit)


def place_here(
    waiting: Sequence[WaitingJob], views: tuple[HostView, HostView], leases: Mapping[GpuKey, str]
) -> list[PlacementResult]:
    """Return a result for every waiting job; the views are those for jobs with GPUs, and for jobs without."""
    with_gpus, without = [job for job in waiting if job.requests], [job for job in waiting if not job.requests]
    found = [*place(with_gpus, [views[0]], leases, _runs), *place(without, [views[1]], leases, _runs)]
    by_job = {result.job: result for result in found}
    return [by_job[job.job] for job in waiting]


def _runs(image: str, gpu: Gpu) -> str | None:
    """Return None: a process has no image that a GPU could refuse."""
    return None
