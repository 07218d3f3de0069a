"""Owns setting aside what an attempt must not find: checkpoints of earlier attempts that are newer than the chosen one.

Many scripts load the newest checkpoint of their folder by themselves, and would take the very one that Rung has stepped
over. Nothing is deleted. Done before an attempt starts; safe to do again, since what was moved already is found again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError, RungError
from rung.jobs.model.paths import IN_JOB
from rung.recovery.decide.checkpoint_choice import Checkpoint
from rung.runner.checkpoints.verify import checkpoint_of
from rung.runner.context import Context
from rung.runner.seams.engine import Engine, FileEntry, Request

FOLDER = ".set-aside"
# What a script may take for a checkpoint whether or not the job file's pattern names it; logs and data stay.
LIKE_A_CHECKPOINT = re.compile(
    r".*\.(?:pt|pth|ckpt|bin|safetensors|tar|pkl|distcp)|(?:checkpoint|ckpt|last|latest|best|snapshot)[\w.=~-]*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Query:
    """What is known of a job when one of its attempts is about to start."""

    job: Job
    attempt: Attempt
    earlier: Sequence[Attempt]
    verdicts: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Cleared:
    """What lay in the way; `aside` None: it was not moved, because of `error` or because the folder is not ours."""

    names: tuple[str, ...]
    aside: Path | None
    error: str = ""


def in_the_way(entries: Sequence[FileEntry], query: Query) -> list[str]:
    """Return the names of what earlier attempts wrote and what is newer than the checkpoint to go on from. Pure."""
    begun = min((each.started_at for each in query.earlier if each.started_at is not None), default=None)
    if begun is None:
        return []
    pattern = PurePath(query.job.spec.checkpoint.pattern)
    ours = [each for each in entries if each.written_at >= begun and _like_one(each, str(pattern))]
    found = [checkpoint_of(each, query.verdicts.get(each.fingerprint, {}), query.earlier) for each in ours]
    chosen = next((each for each in found if each.name == query.attempt.resumed_from), None)
    return [each.name for each in found if _newer(each, chosen, query.attempt)]


def _like_one(entry: FileEntry, pattern: str) -> bool:
    return PurePath(entry.name).match(pattern) or LIKE_A_CHECKPOINT.fullmatch(entry.name) is not None


def _newer(found: Checkpoint, chosen: Checkpoint | None, attempt: Attempt) -> bool:
    if attempt.resumed_from is None:
        return True
    if found.name == attempt.resumed_from:
        return False
    if found.step_from != "time":
        return found.step > (attempt.planned_step or 0)
    return chosen is None or found.written_at > chosen.written_at


def folder_of(request: Request) -> Path:
    """Return where an attempt's way is cleared to: in the job's own folder, outside the one for checkpoints."""
    job = Path(IN_JOB) if request.container is not None else request.paths.job_folder
    return job / FOLDER / f"attempt-{request.attempt}"


def clear(engine: Engine, request: Request, query: Query) -> Cleared:
    """Move out of the way what is in it; run beside the loop where the engine is on a host."""
    names: list[str] = []
    aside = folder_of(request)
    try:
        names = in_the_way(engine.list_files(request, "*"), query)
        folder = PurePath(query.job.spec.checkpoint.dir)
        if folder.is_absolute() or ".." in folder.parts:
            return Cleared(tuple(names), None)
        engine.move(request, names, aside)
        moved = engine.list_files(replace(request, checkpoint_dir=aside), "*")
    except EngineError as error:
        return Cleared(tuple(names), None, str(error))
    return Cleared(tuple(entry.name for entry in moved), aside)


class Clearing:
    """Clears the way of each attempt once, and tells of it before the attempt starts."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._done: set[tuple[str, int]] = set()

    def pending(self, attempt: Attempt) -> bool:
        return attempt.number > 1 and (attempt.job_id, attempt.number) not in self._done

    def send(self, job: Job, attempt: Attempt, request: Request, failed: Callable[[Job, RungError], None]) -> None:
        store = self._context.store
        attempts = store.attempts(job.id)
        query = Query(job, attempt, attempts[: attempt.number - 1], store.verdicts(job.id))
        work = partial(clear, self._context.engine(attempt), request, query)
        self._context.ask(job, attempt, work, partial(self._tell, attempt), failed)

    def _tell(self, attempt: Attempt, job: Job, cleared: Cleared) -> None:
        self._done.add((attempt.job_id, attempt.number))
        told = [(event.kind, event.attempt) for event in self._context.store.events(job.id)]
        if not (cleared.names or cleared.error) or ("set_aside", attempt.number) in told:
            return
        with self._context.store.transaction():
            data = {"files": list(cleared.names), "because": _because(attempt, cleared)}
            self._context.store.add_event(job.id, attempt.number, "set_aside", data, at=self._context.now())


def _because(attempt: Attempt, cleared: Cleared) -> str:
    more = f" and {len(cleared.names) - 5} more" if len(cleared.names) > 5 else ""
    names = ", ".join(sorted(cleared.names)[:5]) + more or "checkpoints"
    than = f"newer than {attempt.resumed_from}" if attempt.resumed_from else "of earlier attempts"
    if cleared.aside is not None:
        return f"{names}: {than}, so set aside in {FOLDER}/{cleared.aside.name}: the script may load the newest"
    why = cleared.error or "checkpoint.dir is not the job's own folder"
    return f"{names}: {than}, and left where they are ({why}); a script that loads the newest by itself would take them"
