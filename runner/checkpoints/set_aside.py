"""Sets aside checkpoints of earlier attempts that are newer than the chosen one, before the next attempt starts.

Many scripts load the newest checkpoint of their folder by themselves, and would load one that Rung has rejected.
Nothing is deleted. It is safe to repeat: files that were moved before are found again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath

from rung.jobs.job import Attempt, Job
from rung.jobs.model.checkpoint_verdict import NOT_EXAMINED
from rung.jobs.model.errors import EngineError, RungError
from rung.jobs.model.event import EventKind
from rung.jobs.model.paths import IN_FILES, IN_JOB, set_aside_in_files
from rung.jobs.spec.checkpoint_spec import CheckpointSpec
from rung.recovery.decide.checkpoint_choice import Checkpoint
from rung.runner.checkpoints.verify import Verdicts, checkpoint_of
from rung.runner.checkpoints.whole_folder import LastSeen
from rung.runner.context import Context
from rung.runner.seams.engine import Engine, FileEntry, Request

FOLDER = ".set-aside"
# What a script may load as a checkpoint, also where the pattern of the job file does not match; logs and data stay.
LIKE_A_CHECKPOINT = re.compile(
    r".*\.(?:pt|pth|ckpt|bin|safetensors|tar|pkl|distcp)|(?:checkpoint|ckpt|last|latest|best|snapshot)[\w.=~-]*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Query:
    """What is known about a job when one of its attempts is about to start."""

    job: Job
    attempt: Attempt
    earlier: Sequence[Attempt]
    verdicts: Verdicts


@dataclass(frozen=True)
class SetAside:
    """The files to set aside. `aside` None: they were not moved, because of `error` or a folder that is not ours."""

    names: tuple[str, ...]
    aside: Path | None
    error: str = ""


def files_to_set_aside(entries: Sequence[FileEntry], query: Query) -> list[str]:
    """Return the names of files that earlier attempts wrote and that are newer than the checkpoint to resume. Pure."""
    begun = min((each.started_at for each in query.earlier if each.started_at is not None), default=None)
    if begun is None:
        return []
    spec = query.job.spec.checkpoint
    ours = [each for each in entries if each.written_at >= begun and _like_one(each, spec)]
    found = [checkpoint_of(each, query.verdicts.get(each.fingerprint, NOT_EXAMINED), query.earlier) for each in ours]
    chosen = next((each for each in found if each.name == query.attempt.resumed_from), None)
    # The one file that every save overwrites: it stays only if it is the chosen version.
    overwritten = spec.pattern if spec.is_one_file else None
    return [
        each.name
        for each in found
        if (_differs(each, chosen) if each.name == overwritten else _newer(each, chosen, query.attempt))
    ]


def _like_one(entry: FileEntry, spec: CheckpointSpec) -> bool:
    matches = any(PurePath(entry.name).match(pattern) for pattern in (spec.pattern, spec.searched))
    return matches or LIKE_A_CHECKPOINT.fullmatch(entry.name) is not None


def _differs(found: Checkpoint, chosen: Checkpoint | None) -> bool:
    return chosen is None or (found.size, found.written_at) != (chosen.size, chosen.written_at)


def _newer(found: Checkpoint, chosen: Checkpoint | None, attempt: Attempt) -> bool:
    if attempt.resumed_from is None:
        return True
    if found.name == attempt.resumed_from:
        return False
    if found.step_from != "time":
        return found.step > (attempt.planned_step or 0)
    return chosen is None or found.written_at > chosen.written_at


def folder_of(request: Request) -> Path:
    """Return where files are moved to for an attempt: in the folder of the job, where no job in a container writes."""
    if request.container is not None:
        return Path(set_aside_in_files(request.container.residence, request.attempt))
    return request.paths.job_folder / FOLDER / f"attempt-{request.attempt}"


def folders_of(request: Request) -> tuple[Path, ...]:
    """Return where files of an attempt may have been moved to, also by 0.1.0, which let the job write there."""
    before = (Path(IN_JOB) / FOLDER / f"attempt-{request.attempt}",) if request.container is not None else ()
    return (folder_of(request), *before)


def is_jobs_own(checkpoint: CheckpointSpec) -> bool:
    """Tell whether the checkpoint folder belongs to the job, so that files may be moved out of it."""
    folder = PurePath(checkpoint.dir)
    return not folder.is_absolute() and ".." not in folder.parts


def move_aside(
    engine: Engine,
    request: Request,
    query: Query,
    *,
    is_first_try: bool = False,
    seen: Sequence[FileEntry] | None = None,
) -> SetAside:
    """Move the files aside; runs in a worker thread where the engine is on a host.

    `is_first_try`: nothing can have been moved before. `seen`: what is in the folder, if that is known. On a host each
    look into a folder takes a container, and so does the move.
    """
    names: list[str] = []
    aside = folder_of(request)
    try:
        names = files_to_set_aside(engine.list_files(request, "*") if seen is None else seen, query)
        if not is_jobs_own(query.job.spec.checkpoint) or (is_first_try and not names):
            return SetAside(tuple(names), None)
        engine.move(request, names, aside)
        if is_first_try:
            return SetAside(tuple(names), aside)
        moved = engine.list_files(replace(request, checkpoint_dir=aside), "*")
    except EngineError as error:
        if request.container is not None:
            raise  # the attempt cannot start on this host; elsewhere its folder is empty
        return SetAside(tuple(names), None, str(error))
    return SetAside(tuple(entry.name for entry in moved), aside)


class CheckpointMover:
    """Sets files aside once for each attempt, and records it before the attempt starts."""

    def __init__(self, context: Context, last_seen: LastSeen) -> None:
        self._context, self._last_seen = context, last_seen
        self._done: set[tuple[str, int]] = set()
        # Those for which files may have been moved already, by this controller or by one that was killed.
        active = context.store.jobs(active=True)
        self._tried = {(each.job_id, each.number) for job in active for each in context.store.attempts(job.id)[-1:]}

    def job_ended(self, job_id: str) -> None:
        """Drop what is kept about a job: none of its attempts is started any more."""
        self._done = {key for key in self._done if key[0] != job_id}
        self._tried = {key for key in self._tried if key[0] != job_id}

    def pending(self, attempt: Attempt) -> bool:
        return attempt.number > 1 and (attempt.job_id, attempt.number) not in self._done

    def send(self, job: Job, attempt: Attempt, request: Request, failed: Callable[[Job, RungError], None]) -> bool:
        """Have the files moved; True: there are none, as is known here, and the attempt can start at once."""
        store, key = self._context.store, (attempt.job_id, attempt.number)
        query = Query(job, attempt, store.attempts(job.id)[: attempt.number - 1], store.verdicts(job.id))
        # Only just before the first try: after that, files may have been moved.
        seen, is_first_try = self._last_seen.take(attempt), key not in self._tried
        if is_new_folder(query) or (seen is not None and not files_to_set_aside(seen, query)):
            self._done.add(key)
            return True
        engine = self._context.engines.of(attempt)
        work = partial(move_aside, engine, request, query, is_first_try=is_first_try, seen=seen)
        self._tried.add(key)
        self._context.call_engine(job, attempt, work, partial(self._record, attempt), failed)
        return False

    def _record(self, attempt: Attempt, job: Job, moved: SetAside) -> None:
        recorded = [(event.kind, event.attempt) for event in self._context.store.events(job.id)]
        if (moved.names or moved.error) and (EventKind.SET_ASIDE, attempt.number) not in recorded:
            with self._context.store.transaction():
                data = {"files": list(moved.names), "because": _because(attempt, moved)}
                self._context.store.add_event(job.id, attempt.number, EventKind.SET_ASIDE, data, at=self._context.now())
        # Only now: a store that cannot be written is tried again.
        self._done.add((attempt.job_id, attempt.number))


def is_new_folder(query: Query) -> bool:
    """Tell whether an attempt is the first in its residence, and so in its own checkpoint folder."""
    earlier = {each.residence for each in query.earlier}
    return query.attempt.residence not in earlier and is_jobs_own(query.job.spec.checkpoint)


def _because(attempt: Attempt, moved: SetAside) -> str:
    more = f" and {len(moved.names) - 5} more" if len(moved.names) > 5 else ""
    names = ", ".join(sorted(moved.names)[:5]) + more or "checkpoints"
    than = f"newer than {attempt.resumed_from}" if attempt.resumed_from else "of earlier attempts"
    if moved.aside is not None:
        place = str(moved.aside).removeprefix(f"{IN_FILES}/") if moved.aside.is_relative_to(IN_FILES) else None
        place = place or f"{FOLDER}/{moved.aside.name}"
        return f"{names}: {than}, so set aside in {place}: the script may load the newest"
    why = moved.error or "checkpoint.dir is not the job's own folder"
    return f"{names}: {than}, and left where they are ({why}); a script that loads the newest by itself would take them"
