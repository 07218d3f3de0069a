"""Starts an attempt on a host: brings its image and its checkpoint there, then starts it.

The work is built in the loop and runs in a worker thread. It is safe to repeat: each step finds what was done before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from rung.jobs.job import Attempt, Job
from rung.recovery.decide.checkpoint_choice import MIRROR
from rung.runner.checkpoints.mirror import keep_newest
from rung.runner.checkpoints.shared_files import engines_with_files, fetch_checkpoint, first_answer, hosts_with_files
from rung.runner.context import Context
from rung.runner.launch.request import start_attempt
from rung.runner.seams.engine import Request

Fetch = Callable[[], Path]


def begin(
    context: Context, job: Job, attempt: Attempt, request: Request, secrets: Mapping[str, str]
) -> Callable[[], None]:
    """Return the work that starts an attempt on its host."""
    engine, starter = context.engines.on(attempt.host), context.engines.of(attempt)
    request = context.avoiding_bad_nodes(job, attempt, request)
    copy, near = _copy(context, job, attempt), copy_here(context, job, attempt, request)
    back = put_back(context, job, attempt, request)
    on_progress = partial(context.tell_progress, job.id)

    def work() -> None:
        engine.ensure_image(request.container.image if request.container else "", on_progress)
        if copy is not None:
            on_progress(f"{attempt.resumed_from} is being brought to {attempt.host}")
            engine.deliver(request, copy())
        if near is not None:
            on_progress(f"{attempt.resumed_from} is being copied")
            near()
        if back is not None:
            back()
        start_attempt(starter, request, secrets, context.sleep)

    return work


def begin_here(
    context: Context, job: Job, attempt: Attempt, request: Request, secrets: Mapping[str, str]
) -> Callable[[], None]:
    """Return the work that starts an attempt on this machine."""
    engine = context.engines.of(attempt)
    steps = (copy_here(context, job, attempt, request), put_back(context, job, attempt, request))

    def work() -> None:
        for step in filter(None, steps):
            step()
        start_attempt(engine, request, secrets, context.sleep)

    return work


def _copy(context: Context, job: Job, attempt: Attempt) -> Fetch | None:
    """Return how to get the checkpoint that has to be brought; None if it is there already."""
    source, name = attempt.checkpoint_from, attempt.resumed_from
    if source is None or name is None or _has_files_of(context, job, attempt, source[0]):
        return None
    folder = context.paths.mirror(job.id)
    if source == MIRROR:
        return lambda: folder / name
    last = _last_at(context, job, source)
    engines, request = engines_with_files(context.engines, job, last), context.request(job, last)

    def fetch() -> Path:
        copy = first_answer(engines, lambda engine: fetch_checkpoint(engine, request, name, folder))
        keep_newest(copy)
        return copy

    return fetch


def copy_here(context: Context, job: Job, attempt: Attempt, request: Request) -> Callable[[], None] | None:
    """Return the work that copies the checkpoint from another residence in the same folder; None if it is there.

    To this machine it also comes from the copies here: a job may begin at a checkpoint of another one.
    """
    source, name = attempt.checkpoint_from, attempt.resumed_from
    if source == MIRROR and name is not None and not attempt.is_remote:
        copies = replace(request, checkpoint_dir=context.paths.mirror(job.id))
        return partial(context.engines.of(attempt).copy, copies, request, name)
    if source is None or name is None or not _has_files_of(context, job, attempt, source[0]):
        return None
    last = _last_at(context, job, source)
    return partial(context.engines.of(attempt).copy, context.request(job, last), request, name)


def put_back(context: Context, job: Job, attempt: Attempt, request: Request) -> Callable[[], None] | None:
    """Return the work that puts a version back under the name of the one file that the script loads; None: no need."""
    name = attempt.resumed_from
    loaded = job.spec.checkpoint.loaded_name(name) if name is not None else None
    if name is None or loaded == name:
        return None
    return partial(context.engines.of(attempt).copy, request, request, name, loaded)


def _has_files_of(context: Context, job: Job, attempt: Attempt, host: str) -> bool:
    """Tell whether the host of an attempt has what was saved on another: it is the same, or shares its folder."""
    same = host == attempt.host
    return same or (attempt.is_remote and host in hosts_with_files(context.engines.hosts, job, attempt.host))


def _last_at(context: Context, job: Job, residence: tuple[str, int]) -> Attempt:
    """Return the last attempt of a residence."""
    return [one for one in context.store.attempts(job.id) if (one.host, one.residence) == residence][-1]
