"""Attempts that ended at some place, for the tests of what is set aside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.engine import DOCKER, PlacedBy
from rung.jobs.model.event import EventKind
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.store import Store
from rung.runner.state.transitions import record_end

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
ASSERT = "RuntimeError: CUDA error: device-side assert triggered"
HOUR = 3600.0
SITE = replace(DOCKER, name="docker", placed_by=PlacedBy.SITE)


def titan(host: str, index: int) -> Gpu:
    return Gpu("NVIDIA TITAN RTX", (7, 5), index, f"GPU-{host}-{index}")


def ended(job: str, at: float, *, gpus: tuple[int | Gpu, ...] = (0,), host: str = "turing", **fields: Any) -> Attempt:
    """Return an attempt that ended well on some GPUs of a host, given by index; `node`: on a node of a site."""
    cards = tuple(each if isinstance(each, Gpu) else titan(host, each) for each in gpus)
    known = {"outcome": Outcome.SUCCEEDED, "engine": SITE if "node" in fields else DOCKER, "gpus": cards}
    return Attempt(job, 1, host, Knobs(), None, "", ended_at=at, **{**known, **fields})


def died(job: str, at: float, line: str = ECC, **fields: Any) -> Attempt:
    fault = Fault(fields.pop("kind", FaultKind.CUDA_FAULT), line)
    return ended(job, at, fault=fault, outcome=Outcome.FAULT, **fields)


def record(store: Store, folder: Path, attempts: Iterable[Attempt], host_clock: float = 0.0) -> list[str]:
    """Write attempts into a store as the controller does, each for a new job; return the ids of the jobs.

    `host_clock`: by how much the clock of the host is wrong.
    """
    jobs = []
    with store.transaction():
        for attempt in attempts:
            at = attempt.ended_at or 0.0
            job = store.add_job(JobSpec.model_validate({"name": attempt.job_id, "run": "true"}), folder, at=at)
            mine = replace(attempt, job_id=job.id, ended_at=at + host_clock)
            store.put_attempt(mine)
            if mine.fault is not None:
                store.add_event(job.id, mine.number, EventKind.FAULT, mine.fault.to_dict(), at=at)
            record_end(store, mine, mine.outcome, at=at)
            jobs.append(job.id)
    return jobs
