"""Chooses the files of a job to fetch, on its host or here, and brings them into a folder of the user."""

from __future__ import annotations

import glob
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.errors import UsageError
from rung.jobs.model.terminal_text import clean
from rung.recovery.decide.checkpoint_choice import MIRROR as MIRROR_RESIDENCE
from rung.runner.checkpoints.residences import residence_of
from rung.runner.checkpoints.start_from import healthy_checkpoint
from rung.runner.context import Context
from rung.runner.seams.storage import FoundFile, Storage
from rung.runner.storage.here import LocalStorage
from rung.runner.storage.layout import MIRROR, RESERVED, checkpoint_folder, residence_folder, work_copy
from rung.runner.storage.shared import storage_on
from rung.runner.views.history import history, with_series

MOST_PATTERN, MOST_STARS = 1000, 3
LOG_NAMES = ("log", "log.*")


@dataclass(frozen=True)
class Choice:
    """Files of one folder, and the folder of the user's that they go to."""

    into: str
    storage: Storage
    folder: str
    files: tuple[FoundFile, ...]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)


def parse_pattern(text: str) -> tuple[str, ...]:
    """Return the parts of a pattern, or refuse it: it must stay below the folders of the job."""
    parts = PurePosixPath(text).parts
    if text.startswith("/") or ".." in parts:
        raise UsageError(f"{clean(text)}: a pattern is relative to the folders of the job, without .. and not absolute")
    plain = text.isprintable() and "\\" not in text and len(text) <= MOST_PATTERN
    if not parts or not plain or parts.count("**") > MOST_STARS:
        raise UsageError(f"{clean(text)[:100]!r}: write a pattern such as *.json, out/*.csv or results/**/best.pt")
    return parts


def matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Tell whether a path or a folder above it matches: * and ? stay in one name, ** is any number of folders. Pure."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(matches(path[first:], pattern[1:]) for first in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and matches(path[1:], pattern[1:])


def chosen_by_pattern(context: Context, job: Job, pattern: str) -> list[Choice]:
    """Return the files that match in the folders of the newest attempt: its checkpoints, its output, its work copy."""
    parts, last = parse_pattern(pattern), _last(context, job)
    storage = _storage(context, job, last)
    own, output = checkpoint_folder(job, last), residence_folder(last)
    places = {
        "checkpoints": own if own is not None else str(context.request(job, last).checkpoint_dir),
        "output": output,
        "work": work_copy(last),
    }
    found = []
    for into, folder in places.items():
        files = [each for each in storage.files(folder, pattern.replace("**/", "*")) if _is_wanted(each, parts)]
        reserved = () if into == "work" or last.is_remote or last.residence > 1 else RESERVED
        if into == "output" and own is not None:
            reserved = (*reserved, own)
        files = [each for each in files if not _is_below(f"{folder}/{each.path}", reserved)]
        found.append(Choice(into, storage, folder, tuple(files)))
    return [each for each in found if each.files]


def _is_wanted(file: FoundFile, pattern: Sequence[str]) -> bool:
    path = PurePosixPath(file.path).parts
    hidden = any(part.startswith(".") for part in path) and not any(part.startswith(".") for part in pattern)
    return not hidden and matches(path, pattern)


def _is_below(path: str, folders: Sequence[str]) -> bool:
    """Tell whether a file lies in a folder of Rung's own, or with the checkpoints, which are listed as such."""
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)


def chosen_by_default(context: Context, job: Job) -> list[Choice]:
    """Return the newest healthy checkpoint and the logs of every attempt."""
    here = LocalStorage(context.paths, job.id)
    return [*_newest_checkpoint(context, job, here), *_logs(context, job, here)]


def _newest_checkpoint(context: Context, job: Job, here: LocalStorage) -> list[Choice]:
    line = main_line(context.store.attempts(job.id))
    found = healthy_checkpoint(context, job) if line else None
    if found is None:
        return []
    last = next((each for each in reversed(line) if residence_of(each) == found.residence), line[-1])
    storage: Storage = here
    folder: str | None = MIRROR
    if found.residence != MIRROR_RESIDENCE:
        storage, folder = _storage(context, job, last), checkpoint_folder(job, last)
    place = folder or str(context.request(job, last).checkpoint_dir)
    files = [each for each in storage.files(place, glob.escape(found.name)) if _is_named(each, found.name)]
    return [Choice("checkpoints", storage, place, tuple(files))] if files else []


def _is_named(file: FoundFile, name: str) -> bool:
    return PurePosixPath(file.path).parts[0] == name


def _logs(context: Context, job: Job, here: LocalStorage) -> list[Choice]:
    found = []
    for attempt in context.store.attempts(job.id):
        folder = f"attempts/{attempt.number}"
        # The copy of a log that is long has several files.
        files = [each for each in here.files(folder, "log*") if any(fnmatchcase(each.path, name) for name in LOG_NAMES)]
        found.append(Choice(f"logs/attempt-{attempt.number}", here, folder, tuple(files)))
    return [each for each in found if each.files]


def history_text(context: Context, job: Job, now: Callable[[], float] = time.time) -> str:
    """Return the recovery history of the job as `rung history --json` prints it."""
    data = history(context.store, job, context.paths, now())
    return json.dumps(with_series(data), indent=2, default=str) + "\n"


def _last(context: Context, job: Job) -> Attempt:
    line = main_line(context.store.attempts(job.id))
    if not line:
        raise UsageError(f"job {job.id} has not been started, so it has no files yet")
    return line[-1]


def _storage(context: Context, job: Job, attempt: Attempt) -> Storage:
    if not attempt.is_remote:
        return LocalStorage(context.paths, job.id)
    return storage_on(context.engines, attempt.host, context.request(job, attempt))
