"""Searches the residences of a job, newest first, for a checkpoint to resume from, then the copies kept here.

It runs in a worker thread, and tells of each verdict as it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rung.jobs.job import Attempt
from rung.jobs.model.checkpoint_verdict import NOT_EXAMINED, CheckpointVerdict
from rung.jobs.model.errors import EngineError, HostError
from rung.recovery.decide.checkpoint_choice import MIRROR, SOUND, Checkpoint, Sighting, Unseen, choose_checkpoint
from rung.runner.checkpoints.verify import NewVerdict, Verdicts, checkpoint_of, keep_all, verify_enough
from rung.runner.checkpoints.whole_folder import Seen
from rung.runner.files.fingerprint import local_entry
from rung.runner.seams.engine import Engine, FileEntry, Request


@dataclass(frozen=True)
class Source:
    """A residence of the job: how to reach its checkpoints, and the answer when no host with them can be asked.

    `engines`: of the hosts that have them, in the order in which they are asked; none if no such host is in the list.
    `seen`: keeps all that is in the folder, because no run writes there any more; None: one may.
    """

    residence: tuple[str, int]
    engines: Sequence[Engine]
    request: Request
    unseen: Unseen
    seen: Seen | None = None


@dataclass(frozen=True)
class Query:
    """What a checkpoint must be for these attempts, and the verdicts known so far."""

    pattern: str
    attempts: Sequence[Attempt]
    limit: int | None
    verdicts: Verdicts
    mirror: Path


def search(sources: Sequence[Source], query: Query, keep: Callable[[NewVerdict], None]) -> list[Sighting]:
    """Search the residences of a job until one has a healthy checkpoint that is old enough; `keep` takes verdicts."""
    found: list[Sighting] = []
    copies: list[Checkpoint] | None = None
    for source in sources:
        here = _look(source, query, keep)
        if isinstance(here, Unseen):
            found.append(here)
            if not (here.given_up or here.abandoned):
                return found  # the job waits for this host, whatever the others have
            if copies is None:
                copies = mirrored(query.mirror, query.verdicts, query.attempts)
                found += copies
        else:
            found += here
        if choose_checkpoint(found, query.attempts, query.limit).checkpoint is not None:
            return found
    return found if copies is not None else [*found, *mirrored(query.mirror, query.verdicts, query.attempts)]


def _look(source: Source, query: Query, keep: Callable[[NewVerdict], None]) -> list[Checkpoint] | Unseen:
    """Verify what a residence has, as far as needed. A host that cannot answer has not said that there is nothing."""
    known, whys = dict(query.verdicts), []
    for engine in source.engines:
        try:
            here = _verified(engine, source, query, known, keep)
        except (EngineError, HostError) as error:
            if source.request.container is None:
                raise  # this machine: it answers, and what is wrong with the folder stays in the job's reason
            whys.append(str(error).removeprefix(f"{source.residence[0]}: ")[:160])
        else:
            return [replace(each, residence=source.residence) for each in here]
    return replace(source.unseen, why=whys[0]) if whys else source.unseen


def _verified(
    engine: Engine,
    source: Source,
    query: Query,
    known: dict[str, CheckpointVerdict],
    keep: Callable[[NewVerdict], None],
) -> list[Checkpoint]:
    """Verify enough of what one host shows, and return all of it; new verdicts are added to `known`."""

    def note(verdict: NewVerdict) -> None:
        known.update([verdict])
        keep(verdict)

    listing = _listing(engine, source, query.pattern)
    return keep_all(verify_enough(engine, source.request, listing, query.attempts, query.limit, known), note)


def _listing(engine: Engine, source: Source, pattern: str) -> Callable[[], Sequence[FileEntry]]:
    # Another host that shares the folder may show for a moment what was there before.
    if source.seen is not None and engine.host == source.residence[0]:
        return source.seen.look(engine, source.request, source.residence, pattern)
    return partial(engine.list_files, source.request, pattern)


def mirrored(folder: Path, verdicts: Verdicts, attempts: Sequence[Attempt] = ()) -> list[Checkpoint]:
    """Return the copies here whose originals are sound; a copy has the size and time of its original."""
    if not folder.is_dir():
        return []
    paths = [path for path in folder.iterdir() if not path.name.startswith(".")]
    entries = [entry for path in paths if (entry := local_entry(path, sampled=False)) is not None]
    known = [(entry, verdicts.get(entry.fingerprint, NOT_EXAMINED)) for entry in entries]
    sound = [checkpoint_of(entry, verdict, attempts) for entry, verdict in known if verdict.verdict in SOUND]
    return [replace(each, residence=MIRROR) for each in sound]


def residence_of(attempt: Attempt) -> tuple[str, int]:
    return attempt.host, attempt.residence
