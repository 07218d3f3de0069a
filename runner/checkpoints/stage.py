"""Owns the beginning of an attempt on a host: its image, its checkpoint from wherever it lies, then the start.

Built on the loop, run beside it; safe to run again, since each step finds what an earlier try has done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError
from rung.runner.checkpoints.mirror import keep_newest
from rung.runner.checkpoints.search import MIRROR
from rung.runner.context import Context
from rung.runner.files.transfer import deliver, fetch
from rung.runner.launch.request import start_attempt
from rung.runner.seams.engine import FileEntry, HostEngine, Request
from rung.runner.seams.remote import Remote

Fetch = Callable[[], Path]


def begin(
    context: Context, job: Job, attempt: Attempt, request: Request, secrets: Mapping[str, str]
) -> Callable[[], None]:
    """Return the work that has an attempt running on its host."""
    engine, remote = context.engines.on(attempt.host), context.engines.remote(attempt.host)
    copy = _copy(context, job, attempt)
    tell = partial(context.progress.__setitem__, job.id)

    def work() -> None:
        engine.ensure_image(request.container.image if request.container else "", tell)
        if copy is not None:
            tell(f"{attempt.resumed_from} is being brought to {attempt.host}")
            deliver(remote, copy(), engine.checkpoint_folder(request))
        start_attempt(engine, request, secrets, context.sleep)

    return work


def _copy(context: Context, job: Job, attempt: Attempt) -> Fetch | None:
    """Return how to get the checkpoint that has to be brought; None where it lies there already."""
    source, name = attempt.checkpoint_from, attempt.resumed_from
    if source is None or name is None:
        return None
    folder = context.paths.mirror(job.id)
    if source == MIRROR:
        return lambda: folder / name
    there = [one for one in context.store.attempts(job.id) if (one.host, one.stay) == source][-1]
    engine, remote = context.engines.on(there.host), context.engines.remote(there.host)
    return partial(_fetch, engine, remote, context.request(job, there), name, folder)


def _fetch(engine: HostEngine, remote: Remote, request: Request, name: str, folder: Path) -> Path:
    entry = _entry(engine, request, name)
    copy = fetch(remote, engine.checkpoint_folder(request), entry, folder)
    keep_newest(copy)
    return copy


def _entry(engine: HostEngine, request: Request, name: str) -> FileEntry:
    for entry in engine.list_files(request, name):
        if entry.name == name:
            return entry
    raise EngineError(f"{engine.host}: checkpoint {name} is not there any more")
