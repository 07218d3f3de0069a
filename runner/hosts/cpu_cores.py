"""Chooses the CPU cores of a job on this machine, so that jobs with a limit do not share one while others are idle."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from rung.runner.hosts.this_machine import job_of


def choose_cores(count: int, allowed: Iterable[int], taken: Mapping[str, frozenset[int]]) -> list[int]:
    """Return so many of the allowed cores, those of the fewest jobs first; all of them where there are not enough."""
    jobs = Counter(core for cores in taken.values() for core in cores)
    return sorted(sorted(allowed, key=lambda core: (jobs[core], core))[:count])


def cores_in_use(allowed: frozenset[int]) -> dict[str, frozenset[int]]:
    """Return the cores that each running job is bound to, also of another RUNG_HOME; not of jobs that have all."""
    found: dict[str, frozenset[int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            cores = allowed & os.sched_getaffinity(int(folder.name))
        except OSError:  # it has ended
            continue
        job = job_of(int(folder.name)) if cores < allowed else ""
        if job:
            found[job] = found.get(job, frozenset()) | cores
    return found
