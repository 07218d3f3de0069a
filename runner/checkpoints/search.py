"""Searches for the checkpoints that a job can resume from: its residences, newest first, then the copies kept here.

The search runs in a worker thread. Its result is kept until the next attempt is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rung.jobs.job import Attempt, Job
from rung.jobs.model.checkpoint_verdict import NOT_EXAMINED, CheckpointVerdict
from rung.jobs.model.errors import HostError, RungError
from rung.jobs.model.event import EventKind
from rung.recovery.decide.checkpoint_choice import SOUND, UNVERIFIED, Checkpoint, choose_checkpoint
from rung.recovery.decide.quarantine import quarantined
from rung.recovery.decide.resume_limit import resume_limit
from rung.runner.checkpoints.verify import Verdicts, checkpoint_of, find_checkpoints, verify_enough
from rung.runner.context import Context
from rung.runner.files.fingerprint import local_entry
from rung.runner.seams.engine import Engine, Request
from rung.runner.state.codec import verdict_to_dict

RETRY_SECONDS = 2.0
# The residence of a copy on this machine; no host has an empty name.
MIRROR = ("", 0)
NONE_WRITTEN = "the job has saved no checkpoint that Rung can see: every relaunch begins at step 0"


@dataclass(frozen=True)
class Source:
    """A residence of the job, and how to reach its checkpoints. `lost`: its host need not answer."""

    residence: tuple[str, int]
    engine: Engine
    request: Request
    lost: bool


@dataclass(frozen=True)
class Query:
    """What a checkpoint must be for these attempts, and the verdicts known so far."""

    pattern: str
    attempts: Sequence[Attempt]
    limit: int | None
    verdicts: Verdicts
    mirror: Path


@dataclass
class Found:
    checkpoints: list[Checkpoint] = field(default_factory=list)
    verdicts: dict[str, CheckpointVerdict] = field(default_factory=dict)


def search(sources: Sequence[Source], query: Query) -> Found:
    """Search the residences of a job until one has a healthy checkpoint that is old enough."""
    found = Found()
    for source in sources:
        try:
            found.verdicts |= verify_enough(
                source.engine, source.request, query.pattern, query.attempts, query.limit, query.verdicts
            )
            known = {**query.verdicts, **found.verdicts}
            here = find_checkpoints(source.engine, source.request, query.pattern, known, query.attempts)
        except HostError:
            if not source.lost:
                raise
            here = mirrored(query.mirror, query.verdicts, query.attempts)
        else:
            here = [replace(each, residence=source.residence) for each in here]
        found.checkpoints += here
        if choose_checkpoint(found.checkpoints, query.attempts, query.limit).checkpoint is not None:
            return found
    found.checkpoints += mirrored(query.mirror, query.verdicts, query.attempts)
    return found


def mirrored(folder: Path, verdicts: Verdicts, attempts: Sequence[Attempt] = ()) -> list[Checkpoint]:
    """Return the copies here whose originals are sound; a copy has the size and time of its original."""
    if not folder.is_dir():
        return []
    paths = [path for path in folder.iterdir() if not path.name.startswith(".")]
    entries = [entry for path in paths if (entry := local_entry(path, sampled=False)) is not None]
    known = [(entry, verdicts.get(entry.fingerprint, NOT_EXAMINED)) for entry in entries]
    sound = [checkpoint_of(entry, verdict, attempts) for entry, verdict in known if verdict.verdict in SOUND]
    return [replace(each, residence=MIRROR) for each in sound]


class CheckpointSearch:
    """Finds each job's checkpoints once per decision."""

    def __init__(self, context: Context, given_up: Callable[[Job, str], bool]) -> None:
        """`given_up` tells whether a host has been unreachable for longer than the job waits."""
        self._context, self._given_up = context, given_up
        self._found: dict[str, tuple[int, list[Checkpoint]]] = {}

    def find(self, job: Job, attempts: Sequence[Attempt], before: int | None = None) -> list[Checkpoint] | None:
        """Return the checkpoints that the job can resume from; None while the search runs.

        `before` limits the search to earlier steps, for a run that still writes: its newest file is always unseen.
        """
        known = self._found.get(job.id)
        if known is not None and known[0] == attempts[-1].number:
            return known[1]
        if self._context.tasks.busy(job.id):
            return None
        sources = self._sources(job)
        query = Query(
            job.spec.checkpoint.pattern,
            attempts,
            before if before is not None else resume_limit(attempts, job.knobs),
            self._context.store.verdicts(job.id),
            self._context.paths.mirror(job.id),
        )
        answer = (self._take, self._failed)
        self._context.tasks.submit(job.id, attempts[-1].host, lambda: search(sources, query), answer, slow=True)
        return None

    def forget(self, job_id: str) -> None:
        self._found.pop(job_id, None)

    def _sources(self, job: Job) -> list[Source]:
        residences: dict[tuple[str, int], Attempt] = {}
        for attempt in self._context.store.attempts(job.id):
            # The last attempt of a residence has its folder; later residences come first.
            residences.pop((attempt.host, attempt.residence), None)
            residences[attempt.host, attempt.residence] = attempt
        found = (self._source(job, residence, last) for residence, last in reversed(residences.items()))
        return [source for source in found if source is not None]

    def _source(self, job: Job, residence: tuple[str, int], last: Attempt) -> Source | None:
        lost = self._is_lost(job, last)
        try:
            engine = self._context.engines.of(last)
        except HostError:
            if not lost:
                raise
            return None  # taken from the list of hosts
        return Source(residence, engine, self._context.request(job, last), lost)

    def _is_lost(self, job: Job, attempt: Attempt) -> bool:
        return attempt.host_lost or (attempt.is_remote and self._given_up(job, attempt.host))

    def _take(self, job: Job, found: Found) -> None:
        store, at = self._context.store, self._context.now()
        number = store.attempts(job.id)[-1].number
        with store.transaction():
            for fingerprint, verdict in found.verdicts.items():
                if verdict.verdict != UNVERIFIED:
                    store.put_verdict(job.id, fingerprint, verdict)
                data = {"file": fingerprint.rsplit(":", 2)[0], **verdict_to_dict(verdict)}
                store.add_event(job.id, number, EventKind.CHECKPOINT, data, at=at)
            self._record_events(job, number, found.checkpoints, at)
        self._found[job.id] = (number, found.checkpoints)

    def _record_events(self, job: Job, number: int, found: Sequence[Checkpoint], at: float) -> None:
        """Record, once each, the checkpoints that are quarantined, and that a job writes none."""
        store = self._context.store
        recorded = [(event.kind, event.data.get("file"), event.data.get("why")) for event in store.events(job.id)]
        for name, mark in quarantined(store.attempts(job.id)).items():
            if (EventKind.QUARANTINED, name, mark.why) not in recorded:
                because = f"{name} is quarantined: {mark.why}; it stays where it is and is not resumed from again"
                data = {"file": name, "why": mark.why, "because": because}
                store.add_event(job.id, number, EventKind.QUARANTINED, data, at=at)
        kinds = {kind for kind, _, _ in recorded}
        if job.spec.knobs.mode == "zero-edit" and not found and EventKind.NO_CHECKPOINT not in kinds:
            store.add_event(job.id, number, EventKind.NO_CHECKPOINT, {"because": NONE_WRITTEN}, at=at)

    def _failed(self, job: Job, error: RungError) -> None:
        self._context.set_reason(job, f"its checkpoints cannot be looked at: {error}")
        self._context.back_off(job.id, RETRY_SECONDS)
