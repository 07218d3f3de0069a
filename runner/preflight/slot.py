"""Tells which slot of this machine a job would get now, or why it would wait. Reads the store, and writes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rung.jobs.model.gpu import Gpu
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.hosts.survey import Report
from rung.runner.hosts.this_machine import MAX_PARALLEL, max_parallel, survey_here, why_no_gpu
from rung.runner.placement.bad_gpus import mark
from rung.runner.placement.local_slots import gpu_view, leases_of, place_here, slot_view, used_slots, waiting_here
from rung.runner.placement.places import Placed
from rung.runner.state.store import Store


@dataclass(frozen=True)
class SlotPreview:
    """The slot of a job, in words; `waits` is why it has none now."""

    text: str
    gpus: tuple[Gpu, ...] = ()
    waits: str = ""


def preview_slot(spec: JobSpec, job_id: str, store: Store | None, environ: Mapping[str, str]) -> SlotPreview:
    """Return the slot that a job would get now, after the jobs that wait already."""
    jobs = store.jobs(active=True) if store else []
    queued = [job for job in jobs if job.state is JobState.QUEUED and not job.spec.is_remote]
    waiting = [*(waiting_here(job.spec, job.id) for job in queued), waiting_here(spec, job_id)]
    limit, used = max_parallel(environ), used_slots(store, jobs) if store else 0
    report = survey_here(environ) if any(job.requests for job in waiting) else None
    now = time.time()
    (gpus,) = mark([gpu_view(report)], store.bad_places(now) if store else (), now)
    found = place_here(waiting, (gpus, slot_view(limit, used)), leases_of(store) if store else {})[-1]
    if not isinstance(found, Placed):
        return SlotPreview(f"none now: {found.reason}", waits=found.reason)
    named = ", ".join(f"{gpu.type} {gpu.index} ({gpu.uuid})" for gpu in found.gpus)
    return SlotPreview(named or f"one of {limit} for jobs without a GPU, {used} in use", found.gpus)


def machine_lines(report: Report, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what this machine has for jobs without an image."""
    gpus = ", ".join(f"{state.gpu.type} {state.gpu.index}" for state in report.gpus)
    yield f"this machine: {gpus or why_no_gpu(report)}"
    yield f"jobs without a GPU: at most {max_parallel(environ)} at once on this machine ({MAX_PARALLEL})"
