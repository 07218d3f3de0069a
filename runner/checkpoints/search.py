"""Owns finding what a job can go on from, wherever it has been: its stays newest first, then the copies kept here.

The looking is done beside the loop; what is found is kept until the next attempt is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError, HostRefused, HostUnreachable
from rung.recovery.decide.checkpoint_choice import SOUND, UNVERIFIED, Checkpoint, choose_checkpoint
from rung.recovery.decide.quarantine import quarantined
from rung.recovery.decide.resume_limit import resume_limit
from rung.runner.checkpoints.verify import Verdicts, checkpoint_of, find_checkpoints, verify_enough
from rung.runner.context import Context
from rung.runner.files.fingerprint import entry_here
from rung.runner.seams.engine import Engine, Request

REST_SECONDS = 2.0
# The place of a checkpoint that is kept on this machine; no host has an empty name.
MIRROR = ("", 0)
NONE_WRITTEN = "the job has saved no checkpoint that Rung can see: every relaunch begins at step 0"


@dataclass(frozen=True)
class Source:
    """A stay of the job, and how to look into its checkpoints. `lost`: its host may stay silent."""

    stay: tuple[str, int]
    engine: Engine
    request: Request
    lost: bool


@dataclass(frozen=True)
class Query:
    """What a checkpoint must be for these attempts, and what is known of files already."""

    pattern: str
    attempts: Sequence[Attempt]
    limit: int | None
    verdicts: Verdicts
    mirror: Path


@dataclass
class Found:
    checkpoints: list[Checkpoint] = field(default_factory=list)
    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)


def search(sources: Sequence[Source], query: Query) -> Found:
    """Look into the stays of a job until one has a healthy checkpoint that is old enough."""
    found = Found()
    for source in sources:
        try:
            found.verdicts |= verify_enough(
                source.engine, source.request, query.pattern, query.attempts, query.limit, query.verdicts
            )
            known = {**query.verdicts, **found.verdicts}
            here = find_checkpoints(source.engine, source.request, query.pattern, known, query.attempts)
        except (HostUnreachable, HostRefused):
            if not source.lost:
                raise
            here = mirrored(query.mirror, query.verdicts, query.attempts)
        else:
            here = [replace(each, stay=source.stay) for each in here]
        found.checkpoints += here
        if choose_checkpoint(found.checkpoints, query.attempts, query.limit).checkpoint is not None:
            return found
    found.checkpoints += mirrored(query.mirror, query.verdicts, query.attempts)
    return found


def mirrored(
    folder: Path, verdicts: Mapping[str, Mapping[str, Any]], attempts: Sequence[Attempt] = ()
) -> list[Checkpoint]:
    """Return the copies here whose originals were found sound: a copy has the original's size and time."""
    if not folder.is_dir():
        return []
    paths = [path for path in folder.iterdir() if not path.name.startswith(".")]
    entries = [entry for path in paths if (entry := entry_here(path, sampled=False)) is not None]
    known = [(entry, verdicts.get(entry.fingerprint, {})) for entry in entries]
    sound = [checkpoint_of(entry, said, attempts) for entry, said in known if said.get("verdict") in SOUND]
    return [replace(each, stay=MIRROR) for each in sound]


class CheckpointSearch:
    """Finds each job's checkpoints once per decision."""

    def __init__(self, context: Context, given_up: Callable[[Job, str], bool]) -> None:
        """Take the parts, and the word on whether a host has been away for longer than a job waits for it."""
        self._context, self._given_up = context, given_up
        self._found: dict[str, tuple[int, list[Checkpoint]]] = {}

    def find(self, job: Job, attempts: Sequence[Attempt], before: int | None = None) -> list[Checkpoint] | None:
        """Return what the job can go on from; None until that is known.

        `before` bounds the search by a step where the run still writes: the newest file would always be unseen.
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
        self._context.tasks.send(job.id, attempts[-1].host, lambda: search(sources, query), answer, slow=True)
        return None

    def forget(self, job_id: str) -> None:
        self._found.pop(job_id, None)

    def _sources(self, job: Job) -> list[Source]:
        stays: dict[tuple[str, int], Attempt] = {}
        for attempt in self._context.store.attempts(job.id):
            # The last attempt of a stay knows its folder; a later stay comes first.
            stays.pop((attempt.host, attempt.stay), None)
            stays[attempt.host, attempt.stay] = attempt
        found = (self._source(job, stay, last) for stay, last in reversed(stays.items()))
        return [source for source in found if source is not None]

    def _source(self, job: Job, stay: tuple[str, int], last: Attempt) -> Source | None:
        lost = self._is_lost(job, last)
        try:
            engine = self._context.engine(last)
        except EngineError:
            if not lost:
                raise
            return None  # taken from the list of hosts
        return Source(stay, engine, self._context.request(job, last), lost)

    def _is_lost(self, job: Job, attempt: Attempt) -> bool:
        return attempt.host_lost or (attempt.image is not None and self._given_up(job, attempt.host))

    def _take(self, job: Job, found: Found) -> None:
        store, at = self._context.store, self._context.now()
        number = store.attempts(job.id)[-1].number
        with store.transaction():
            for fingerprint, said in found.verdicts.items():
                if said["verdict"] != UNVERIFIED:
                    store.put_verdict(job.id, fingerprint, said)
                data = {"file": fingerprint.rsplit(":", 2)[0], **said}
                store.add_event(job.id, number, "checkpoint", data, at=at)
            self._tell(job, number, found.checkpoints, at)
        self._found[job.id] = (number, found.checkpoints)

    def _tell(self, job: Job, number: int, found: Sequence[Checkpoint], at: float) -> None:
        """Note, once each, the checkpoints that are out of use from now on, and that a job writes none."""
        store = self._context.store
        told = [(event.kind, event.data.get("file"), event.data.get("why")) for event in store.events(job.id)]
        for name, mark in quarantined(store.attempts(job.id)).items():
            if ("quarantined", name, mark.why) not in told:
                because = f"{name} is quarantined: {mark.why}; it stays where it is and is not resumed from again"
                data = {"file": name, "why": mark.why, "because": because}
                store.add_event(job.id, number, "quarantined", data, at=at)
        kinds = {kind for kind, _, _ in told}
        if job.spec.knobs.mode == "zero-edit" and not found and "no_checkpoint" not in kinds:
            store.add_event(job.id, number, "no_checkpoint", {"because": NONE_WRITTEN}, at=at)

    def _failed(self, job: Job, error: EngineError) -> None:
        self._context.say(job, f"its checkpoints cannot be looked at: {error}")
        self._context.rest(job.id, REST_SECONDS)
