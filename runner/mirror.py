"""Owns the copies of checkpoints on this machine, so that a lost host does not mean from scratch.

Now and then the newest healthy checkpoint of a run on a host is copied here; only the newest copy is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.attempt import Attempt, Job
from jobs.spec import parse_size
from jobs.state import JobState
from recovery.checkpoint import HEALTHY, UNVERIFIED, usable
from runner.engine import FileEntry, Request
from runner.errands import Errand
from runner.hostengine import HostEngine
from runner.moving import fetch
from runner.parts import Parts
from runner.remote import Remote
from runner.verify import Verdicts, checkpoint_of, verify_enough

# A run that has written no checkpoint yet is asked again sooner, by this share of the usual time.
SOONER = 0.1


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
    learned = verify_enough(engine, request, original.pattern, attempts, None, verdicts)
    known = {**verdicts, **learned}
    entries = {entry.name: entry for entry in engine.list_files(request, original.pattern)}
    found = [checkpoint_of(entry, known.get(entry.fingerprint, {})) for entry in entries.values()]
    healthy = [entries[each.name] for each in usable(found, attempts, None) if each.verdict == HEALTHY]
    entry = healthy[0] if healthy else None
    if entry is None or entry.size > most or _is_here(folder / entry.name, entry):
        return Copied(None, learned)
    copy = fetch(original.remote, engine.checkpoint_folder(request), entry, folder)
    keep_only(copy)
    return Copied(entry, learned)


def _is_here(path: Path, entry: FileEntry) -> bool:
    return path.is_file() and (path.stat().st_size, path.stat().st_mtime) == (entry.size, entry.written_at)


def keep_only(copy: Path) -> None:
    for other in copy.parent.iterdir():
        if other != copy and other.is_file():
            other.unlink(missing_ok=True)


class Mirror:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._due: dict[str, float] = {}

    def turn(self, job: Job) -> None:
        """Take what has come for a running job, and send for a copy when it is time."""
        key = f"mirror {job.id}"
        errand = self._parts.errands.take(key)
        if errand is not None:
            self._take(job, errand)
        wanted = job.spec.image is not None and job.spec.checkpoint.mirror is not None
        due = self._parts.now() >= self._due.get(job.id, 0.0)
        if wanted and due and job.state is JobState.RUNNING and not self._parts.errands.busy(key):
            self._send(job, key)

    def _send(self, job: Job, key: str) -> None:
        parts, spec = self._parts, job.spec.checkpoint
        attempts = parts.store.attempts(job.id)
        last = attempts[-1]
        self._due[job.id] = parts.now() + spec.mirror_every * SOONER
        request, verdicts = parts.request(job, last), parts.store.verdicts(job.id)
        original = Original(parts.engines.on(last.host), parts.engines.remote(last.host), request, spec.pattern)
        folder, most = parts.paths.mirror(job.id), parse_size(spec.mirror or "0")
        parts.errands.send(
            key, last.host, lambda: copy_newest(original, attempts[job.settled :], verdicts, folder, most), slow=True
        )

    def _take(self, job: Job, errand: Errand) -> None:
        store, at = self._parts.store, self._parts.now()
        error = errand.error
        number = store.attempts(job.id)[-1].number
        if error is not None:
            # A host that is away is told by the job's own reason; a copy that fails costs nothing yet.
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
