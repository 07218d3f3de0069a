"""Owns the list of a job's checkpoints wherever they lie, each with what is known of it after a cheap look.

A cheap look (samples, no checksums) says less than the full one before a resume, so it is remembered apart from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError
from rung.recovery.decide.checkpoint_choice import UNVERIFIED, Checkpoint
from rung.recovery.decide.quarantine import QUARANTINED, Mark, quarantined
from rung.runner.checkpoints.search import mirrored
from rung.runner.checkpoints.set_aside import folder_of
from rung.runner.checkpoints.verify import checkpoint_of, look_into
from rung.runner.context import Context
from rung.runner.seams.engine import Engine, FileEntry, Request

SAMPLED = "~sampled"
# Looked into at once, newest first; older ones are listed as they are known.
MOST_LOOKS = 32


@dataclass(frozen=True)
class Row:
    """One checkpoint, as `rung checkpoints` shows it."""

    name: str
    step: int
    step_from: str
    kind: str
    size: int
    written_at: float
    verdict: str
    look: str
    why: str
    resumed_by: tuple[int, ...]
    where: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class CheckpointFolder:
    """A folder with checkpoints of the job: that of a stay, or what was set aside there."""

    where: str
    engine: Engine
    request: Request


def checkpoint_rows(context: Context, job: Job) -> tuple[list[Row], list[str]]:
    """Return a job's checkpoints, newest first, and why some could not be looked for."""
    attempts = context.store.attempts(job.id)
    rows: list[Row] = []
    notes: list[str] = []
    for place in _places(context, job, attempts, notes):
        try:
            rows += _rows_of(context, job, attempts, place)
        except EngineError as error:
            notes.append(f"the checkpoints on {place.where} cannot be asked for: {error}")
    copies = mirrored(context.paths.mirror(job.id), context.store.verdicts(job.id), attempts)
    rows += [_row(copy, "full", attempts, {}, "a copy here") for copy in copies]
    return sorted(rows, key=lambda row: (row.step, row.written_at), reverse=True), notes


def _places(context: Context, job: Job, attempts: Sequence[Attempt], notes: list[str]) -> list[CheckpointFolder]:
    stays = {(attempt.host, attempt.stay): attempt for attempt in attempts}
    aside = {event.attempt for event in context.store.events(job.id) if event.kind == "set_aside"}
    found: list[CheckpointFolder] = []
    for (host, stay), last in stays.items():
        try:
            engine = context.engine(last)
        except EngineError as error:
            notes.append(f"the checkpoints on {host} cannot be asked for: {error}")
            continue
        found.append(CheckpointFolder(host, engine, context.request(job, last)))
        for attempt in attempts:
            if (attempt.host, attempt.stay) == (host, stay) and attempt.number in aside:
                request = context.request(job, attempt)
                where = f"{host}, set aside before attempt {attempt.number}"
                found.append(CheckpointFolder(where, engine, replace(request, checkpoint_dir=folder_of(request))))
    return found


def _rows_of(context: Context, job: Job, attempts: Sequence[Attempt], place: CheckpointFolder) -> list[Row]:
    entries = place.engine.list_files(place.request, job.spec.checkpoint.pattern)
    known = context.store.verdicts(job.id)
    newest = sorted(entries, key=lambda entry: entry.written_at, reverse=True)[:MOST_LOOKS]
    unseen = [entry for entry in newest if not _said(entry, known)[0]]
    said = look_into(place.engine, place.request, [entry.name for entry in unseen], sampled=True)
    with context.store.transaction():
        for entry in unseen:
            learned = said.get(entry.name)
            if learned is not None:
                known[entry.fingerprint + SAMPLED] = learned
            if learned is not None and learned["verdict"] != UNVERIFIED:
                context.store.put_verdict(job.id, entry.fingerprint + SAMPLED, learned)
    marks = quarantined(attempts)
    rows = []
    for entry in entries:
        verdict, look = _said(entry, known)
        found = checkpoint_of(entry, verdict, attempts)
        found = replace(found, kind=found.kind or ("folder" if entry.is_folder else "file"))
        rows.append(_row(found, look, attempts, marks, place.where))
    return rows


def _said(entry: FileEntry, known: Mapping[str, Mapping[str, Any]]) -> tuple[Mapping[str, Any], str]:
    """Return what was said of a checkpoint, by a full look where there was one."""
    full, sampled = known.get(entry.fingerprint), known.get(entry.fingerprint + SAMPLED)
    if full is not None:
        return full, "full"
    return (sampled, "sampled") if sampled is not None else ({}, "none")


def _row(found: Checkpoint, look: str, attempts: Sequence[Attempt], marks: Mapping[str, Mark], where: str) -> Row:
    users = [each for each in attempts if each.resumed_from == found.name and _was_there(found, each)]
    verdict, why = found.verdict or "not looked at", found.detail
    mark = marks.get(found.name)
    if mark is not None and mark.applies_to(found.written_at):
        verdict, why = QUARANTINED, mark.why
    told = (found.name, found.step, found.step_from, found.kind, found.size, found.written_at, verdict, look, why)
    return Row(*told, tuple(each.number for each in users), where)


def _was_there(found: Checkpoint, attempt: Attempt) -> bool:
    return attempt.started_at is None or found.written_at <= attempt.started_at
