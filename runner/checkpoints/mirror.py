"""Copies checkpoints of hosts to this machine, so that a job whose host is lost need not begin from scratch.

From time to time the newest healthy checkpoint of a run is copied. The two newest copies are kept: the job may delete
the originals, and the newer copy may prove useless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rung.jobs.job import Attempt, Job
from rung.jobs.model.checkpoint_verdict import NOT_EXAMINED, CheckpointVerdict
from rung.jobs.model.errors import HostError, RungError
from rung.jobs.model.event import EventKind
from rung.jobs.model.state import JobState
from rung.jobs.spec.fields import parse_size
from rung.recovery.decide.checkpoint_choice import SOUND, UNVERIFIED, Checkpoint, resume_candidates
from rung.runner.checkpoints.verify import AT_ONCE, Verdicts, checkpoint_of, verify_files
from rung.runner.context import Context
from rung.runner.files.fingerprint import local_entry
from rung.runner.files.transfer import clear
from rung.runner.seams.engine import FileEntry, HostEngine, Request
from rung.runner.task_pool import Lane, Task

# The first look comes after this share of the usual time, and each look in vain doubles it, up to the usual time.
SOONER = 0.1
# So many looks in vain, and the time between them grows no more.
SELDOM = 4
KEPT = 2


@dataclass(frozen=True)
class Copied:
    """The file that was copied, if any, and the new verdicts."""

    entry: FileEntry | None
    verdicts: dict[str, CheckpointVerdict]


@dataclass(frozen=True)
class Original:
    """Where the checkpoints of a run are."""

    engine: HostEngine
    request: Request
    pattern: str


def copy_newest(original: Original, attempts: Sequence[Attempt], verdicts: Verdicts, folder: Path, most: int) -> Copied:
    """Copy the newest healthy checkpoint here, unless it is here already or too large. Runs in a worker thread."""
    engine, request = original.engine, original.request
    # Listed only once: a run writes new ones all the time.
    entries = {entry.name: entry for entry in engine.list_files(request, original.pattern)}
    found = [
        checkpoint_of(entry, verdicts.get(entry.fingerprint, NOT_EXAMINED), attempts) for entry in entries.values()
    ]
    newest = resume_candidates(found, attempts, None)[:AT_ONCE]
    verified = verify_files(engine, request, _unseen(newest))
    new_verdicts = {entries[name].fingerprint: verdict for name, verdict in verified.items()}
    verdict_of = {each.name: each.verdict for each in newest} | {name: new.verdict for name, new in verified.items()}
    entry = next((entries[each.name] for each in newest if verdict_of[each.name] in SOUND), None)
    if entry is None or entry.size > most or _is_here(folder / entry.name, entry):
        return Copied(None, new_verdicts)
    copy = engine.fetch(request, entry, folder)
    keep_newest(copy)
    return Copied(entry, new_verdicts)


def _unseen(newest: Sequence[Checkpoint]) -> list[str]:
    """Return the names to verify: those that are newer than the newest one that is known to be healthy."""
    seen = next((index for index, each in enumerate(newest) if each.verdict in SOUND), len(newest))
    return [each.name for each in newest[:seen] if each.verdict is None]


def _is_here(path: Path, entry: FileEntry) -> bool:
    found = local_entry(path, sampled=False) if path.exists() else None
    return found is not None and found.fingerprint == entry.fingerprint


def keep_newest(copy: Path) -> None:
    """Remove all copies except this one and the one made before it."""
    others = [each for each in copy.parent.iterdir() if each != copy and not each.name.startswith(".")]
    for other in sorted(others, key=lambda each: each.stat().st_ctime)[: -(KEPT - 1)]:
        clear(other)


@dataclass(frozen=True)
class NextLook:
    """When a run is looked at next, and how many looks in vain there were since the last copy."""

    due: float
    vain: int = 0


class Mirror:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._next: dict[str, NextLook] = {}
        # The last error of each job, so that it is recorded once.
        self._errors: dict[str, str] = {}

    def job_ended(self, job_id: str) -> None:
        """Drop what is kept about a job; a copy that is being made stays, and is known when the job is tried again."""
        self._next.pop(job_id, None)
        self._errors.pop(job_id, None)

    def turn(self, job: Job) -> None:
        """Take the result for a running job, and start the next copy when it is time."""
        key = f"mirror {job.id}"
        task = self._context.tasks.take(key)
        if task is not None:
            self._take(job, task)
        wanted = job.spec.is_remote and job.spec.checkpoint.mirror is not None and job.state is JobState.RUNNING
        wanted = wanted and not self._context.store.attempts(job.id)[-1].is_trial
        # Not at once: a run that has just begun has saved nothing, and a new controller may have many to look at.
        if wanted and job.id not in self._next:
            self._next[job.id] = self._after(job, vain=0)
        if wanted and self._context.steady() >= self._next[job.id].due and not self._context.tasks.busy(key):
            self._send(job, key)

    def _after(self, job: Job, vain: int) -> NextLook:
        """Return the next look: soon at first, and seldom for a run in which there is nothing new to copy."""
        every = job.spec.checkpoint.mirror_every
        return NextLook(self._context.steady() + min(every * SOONER * 2.0**vain, every), vain)

    def _send(self, job: Job, key: str) -> None:
        context, spec = self._context, job.spec.checkpoint
        # Before anything can fail here: a look that fails would be tried again in every turn.
        self._next[job.id] = self._after(job, min(self._next[job.id].vain + 1, SELDOM))
        attempts = context.store.attempts(job.id)
        last = attempts[-1]
        request, verdicts = context.request(job, last), context.store.verdicts(job.id)
        original = Original(context.engines.on(last.host), request, spec.searched)
        folder, most = context.paths.mirror(job.id), parse_size(spec.mirror or "0")
        context.tasks.submit(
            key,
            last.host,
            lambda: copy_newest(original, attempts[job.settled :], verdicts, folder, most),
            lane=Lane.SPARE,
            wakes=job.id,
        )

    def _take(self, job: Job, task: Task) -> None:
        store, at = self._context.store, self._context.now()
        error = task.error
        number = store.attempts(job.id)[-1].number
        if error is not None:
            self._failed(job, number, error)
            return
        copied: Copied = task.future.result()
        with store.transaction():
            for fingerprint, verdict in copied.verdicts.items():
                if verdict.verdict != UNVERIFIED:
                    store.put_verdict(job.id, fingerprint, verdict)
            if copied.entry is not None:
                data = {"because": f"{copied.entry.name} is healthy and was copied here", "file": copied.entry.name}
                store.add_event(job.id, number, EventKind.MIRRORED, data, at=at)
                self._next[job.id] = NextLook(self._context.steady() + job.spec.checkpoint.mirror_every)

    def _failed(self, job: Job, number: int, error: RungError) -> None:
        """Record once that a copy could not be made. An unreachable host is already in the job's reason."""
        if isinstance(error, HostError) or self._errors.get(job.id) == str(error):
            return
        self._errors[job.id] = str(error)
        with self._context.store.transaction():
            data = {"because": f"no copy of a checkpoint could be made: {error}"}
            self._context.store.add_event(job.id, number, EventKind.NOT_MIRRORED, data, at=self._context.now())
