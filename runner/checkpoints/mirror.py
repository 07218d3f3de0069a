"""Owns the copies of checkpoints on this machine, so that a lost host does not mean from scratch.

Now and then the newest healthy checkpoint of a run on a host is copied here. The two newest copies are kept: the job's
own rotation may let the originals go, and the newer one may turn out to be of no use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError, HostRefused, HostUnreachable
from rung.jobs.model.state import JobState
from rung.jobs.spec.fields import parse_size
from rung.recovery.decide.checkpoint_choice import SOUND, UNVERIFIED, Checkpoint, resume_candidates
from rung.runner.checkpoints.verify import AT_ONCE, Verdicts, checkpoint_of, look_into
from rung.runner.context import Context
from rung.runner.files.fingerprint import entry_here
from rung.runner.files.transfer import clear, fetch
from rung.runner.seams.engine import FileEntry, HostEngine, Request
from rung.runner.seams.remote import Remote
from rung.runner.task_pool import Task

# A run that has written no checkpoint yet is asked again sooner, by this share of the usual time.
SOONER = 0.1
KEPT = 2


@dataclass(frozen=True)
class Copied:
    """What came of one look: the file that was copied, if any, and what was learned of files on the way."""

    entry: FileEntry | None
    verdicts: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Original:
    """Where a run's checkpoints are."""

    engine: HostEngine
    remote: Remote
    request: Request
    pattern: str


def copy_newest(original: Original, attempts: Sequence[Attempt], verdicts: Verdicts, folder: Path, most: int) -> Copied:
    """Copy the newest healthy checkpoint here, unless it is here already or too large. Runs beside the loop."""
    engine, request = original.engine, original.request
    # Listed once: a run writes new ones all the time, and would never be caught up with.
    entries = {entry.name: entry for entry in engine.list_files(request, original.pattern)}
    found = [checkpoint_of(entry, verdicts.get(entry.fingerprint, {}), attempts) for entry in entries.values()]
    newest = resume_candidates(found, attempts, None)[:AT_ONCE]
    said = look_into(engine, request, _unseen(newest))
    learned = {entries[name].fingerprint: verdict for name, verdict in said.items()}
    verdict_of = {each.name: said.get(each.name, {}).get("verdict", each.verdict) for each in newest}
    entry = next((entries[each.name] for each in newest if verdict_of[each.name] in SOUND), None)
    if entry is None or entry.size > most or _is_here(folder / entry.name, entry):
        return Copied(None, learned)
    copy = fetch(original.remote, engine.checkpoint_folder(request), entry, folder)
    keep_newest(copy)
    return Copied(entry, learned)


def _unseen(newest: Sequence[Checkpoint]) -> list[str]:
    """Return what has to be looked into: all that is newer than the newest healthy one that is known."""
    seen = next((index for index, each in enumerate(newest) if each.verdict in SOUND), len(newest))
    return [each.name for each in newest[:seen] if each.verdict is None]


def _is_here(path: Path, entry: FileEntry) -> bool:
    found = entry_here(path, sampled=False) if path.exists() else None
    return found is not None and found.fingerprint == entry.fingerprint


def keep_newest(copy: Path) -> None:
    """Remove all copies but this one and the one made before it."""
    others = [each for each in copy.parent.iterdir() if each != copy and not each.name.startswith(".")]
    for other in sorted(others, key=lambda each: each.stat().st_ctime)[: -(KEPT - 1)]:
        clear(other)


class Mirror:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._due: dict[str, float] = {}
        self._told: dict[str, str] = {}

    def turn(self, job: Job) -> None:
        """Take what has come for a running job, and send for a copy when it is time."""
        key = f"mirror {job.id}"
        errand = self._context.tasks.take(key)
        if errand is not None:
            self._take(job, errand)
        wanted = job.spec.image is not None and job.spec.checkpoint.mirror is not None
        due = self._context.now() >= self._due.get(job.id, 0.0)
        if wanted and due and job.state is JobState.RUNNING and not self._context.tasks.busy(key):
            self._send(job, key)

    def _send(self, job: Job, key: str) -> None:
        context, spec = self._context, job.spec.checkpoint
        attempts = context.store.attempts(job.id)
        last = attempts[-1]
        self._due[job.id] = context.now() + spec.mirror_every * SOONER
        request, verdicts = context.request(job, last), context.store.verdicts(job.id)
        original = Original(context.engines.on(last.host), context.engines.remote(last.host), request, spec.pattern)
        folder, most = context.paths.mirror(job.id), parse_size(spec.mirror or "0")
        context.tasks.send(
            key, last.host, lambda: copy_newest(original, attempts[job.settled :], verdicts, folder, most), slow=True
        )

    def _take(self, job: Job, errand: Task) -> None:
        store, at = self._context.store, self._context.now()
        error = errand.error
        number = store.attempts(job.id)[-1].number
        if error is not None:
            self._failed(job, number, error)
            return
        copied: Copied = errand.future.result()
        with store.transaction():
            for fingerprint, said in copied.verdicts.items():
                if said["verdict"] != UNVERIFIED:
                    store.put_verdict(job.id, fingerprint, said)
            if copied.entry is not None:
                data = {"because": f"{copied.entry.name} is healthy and was copied here", "file": copied.entry.name}
                store.add_event(job.id, number, "mirrored", data, at=at)
                self._due[job.id] = at + job.spec.checkpoint.mirror_every

    def _failed(self, job: Job, number: int, error: EngineError) -> None:
        """Tell, once, that a copy could not be made. A host that is away is told by the job's own reason."""
        if isinstance(error, (HostUnreachable, HostRefused)) or self._told.get(job.id) == str(error):
            return
        self._told[job.id] = str(error)
        with self._context.store.transaction():
            data = {"because": f"no copy of a checkpoint could be made: {error}"}
            self._context.store.add_event(job.id, number, "not_mirrored", data, at=self._context.now())
