"""Finds the engines that can show the checkpoints of an attempt: of its host, and of those that share its folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import TypeVar

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError, HostError
from rung.jobs.model.host import Host, with_same_folder
from rung.runner.engine_pool import Engines
from rung.runner.seams.engine import HostEngine, Request

Asked = TypeVar("Asked")
Found = TypeVar("Found")


def hosts_with_files(hosts: Sequence[Host], job: Job, host: str) -> tuple[str, ...]:
    """Return the hosts that have the checkpoints of a job which ran on this host, that host first."""
    # A volume is a folder of the host alone, whatever its path.
    in_volume = PurePath(job.spec.checkpoint.dir).is_absolute()
    return (host,) if in_volume else with_same_folder(hosts, host)


def engines_with_files(engines: Engines, job: Job, attempt: Attempt) -> list[HostEngine]:
    """Return the engines of the hosts that have the checkpoints of an attempt; HostError: none of them is listed."""
    found, errors = [], []
    for name in hosts_with_files(engines.hosts, job, attempt.host):
        try:
            found.append(engines.on(name))
        except HostError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found


def first_answer(hosts: Sequence[Asked], ask: Callable[[Asked], Found]) -> Found:
    """Return the answer of the first of these hosts that answers; if none does, the first error counts."""
    errors = []
    for host in hosts:
        try:
            return ask(host)
        except HostError as error:
            errors.append(error)
    raise errors[0]


def fetch_checkpoint(engine: HostEngine, request: Request, name: str, folder: Path) -> Path:
    """Copy a checkpoint from a host into a folder here."""
    entry = next((each for each in engine.list_files(request, name) if each.name == name), None)
    if entry is None:
        raise EngineError(f"{engine.host}: checkpoint {name} is not there any more")
    return engine.fetch(request, entry, folder)
