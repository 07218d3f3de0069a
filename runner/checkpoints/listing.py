"""Lists the checkpoints of a job on every host, each with its verdict.

The sampled check of a listing proves less than the full check before a resume, so its verdict is stored separately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.checkpoint_verdict import NOT_EXAMINED, CheckpointVerdict
from rung.jobs.model.errors import EngineError, HostError
from rung.jobs.model.event import EventKind
from rung.recovery.decide.checkpoint_choice import UNVERIFIED, Checkpoint
from rung.recovery.decide.quarantine import QUARANTINED, Mark, quarantined
from rung.runner.checkpoints.residences import mirrored
from rung.runner.checkpoints.set_aside import folders_of
from rung.runner.checkpoints.shared_files import engines_with_files, first_answer
from rung.runner.checkpoints.verify import Verdicts, checkpoint_of, verify_files
from rung.runner.context import Context
from rung.runner.seams.engine import Engine, FileEntry, Request

SAMPLED = "~sampled"
# Only so many, newest first, are verified for one listing; older ones are listed with the verdict they have.
MOST_VERIFIED = 32


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
    """A folder with checkpoints of the job: the one of a residence, or one of files that were set aside there."""

    where: str
    # Of the hosts that have it: the first that answers is asked.
    engines: Sequence[Engine]
    request: Request


def checkpoint_rows(context: Context, job: Job) -> tuple[list[Row], list[str]]:
    """Return the checkpoints of a job, newest first, and the reasons why some could not be listed."""
    attempts = context.store.attempts(job.id)
    rows: list[Row] = []
    notes: list[str] = []
    for folder in _folders(context, job, attempts, notes):
        try:
            rows += first_answer(folder.engines, partial(_rows_of, context, job, attempts, folder))
        except (EngineError, HostError) as error:
            notes.append(f"the checkpoints on {folder.where} cannot be asked for: {error}")
    copies = mirrored(context.paths.mirror(job.id), context.store.verdicts(job.id), attempts)
    rows += [_row(copy, "full", attempts, {}, "a copy here") for copy in copies]
    return sorted(rows, key=lambda row: (row.step, row.written_at), reverse=True), notes


def _folders(context: Context, job: Job, attempts: Sequence[Attempt], notes: list[str]) -> list[CheckpointFolder]:
    there = [each for each in attempts if each.trial is None or not each.trial.folder_removed]
    residences = {(attempt.host, attempt.residence): attempt for attempt in there}
    aside = {event.attempt for event in context.store.events(job.id) if event.kind == EventKind.SET_ASIDE}
    found: list[CheckpointFolder] = []
    for (host, residence), last in residences.items():
        try:
            engines = engines_with_files(context.engines, job, last) if last.is_remote else [context.engines.of(last)]
        except (EngineError, HostError) as error:
            notes.append(f"the checkpoints on {host} cannot be asked for: {error}")
            continue
        found.append(CheckpointFolder(host, engines, context.request(job, last)))
        for attempt in attempts:
            if (attempt.host, attempt.residence) == (host, residence) and attempt.number in aside:
                request = context.request(job, attempt)
                where = f"{host}, set aside before attempt {attempt.number}"
                requests = (replace(request, checkpoint_dir=folder) for folder in folders_of(request))
                found += [CheckpointFolder(where, engines, each) for each in requests]
    return found


def _rows_of(
    context: Context, job: Job, attempts: Sequence[Attempt], folder: CheckpointFolder, engine: Engine
) -> list[Row]:
    entries = engine.list_files(folder.request, job.spec.checkpoint.searched)
    known = context.store.verdicts(job.id)
    newest = sorted(entries, key=lambda entry: entry.written_at, reverse=True)[:MOST_VERIFIED]
    unseen = [entry for entry in newest if _verdict_on(entry, known)[0] == NOT_EXAMINED]
    verified = verify_files(engine, folder.request, [entry.name for entry in unseen], sampled=True)
    with context.store.transaction():
        for entry in unseen:
            verdict = verified.get(entry.name)
            if verdict is not None:
                known[entry.fingerprint + SAMPLED] = verdict
            if verdict is not None and verdict.verdict != UNVERIFIED:
                context.store.put_verdict(job.id, entry.fingerprint + SAMPLED, verdict)
    marks = quarantined(attempts)
    rows = []
    for entry in entries:
        verdict, look = _verdict_on(entry, known)
        found = checkpoint_of(entry, verdict, attempts)
        found = replace(found, kind=found.kind or ("folder" if entry.is_folder else "file"))
        rows.append(_row(found, look, attempts, marks, folder.where))
    return rows


def _verdict_on(entry: FileEntry, known: Verdicts) -> tuple[CheckpointVerdict, str]:
    """Return the verdict on a checkpoint and the check it is from; a full check comes before a sampled one."""
    full, sampled = known.get(entry.fingerprint), known.get(entry.fingerprint + SAMPLED)
    if full is not None:
        return full, "full"
    return (sampled, "sampled") if sampled is not None else (NOT_EXAMINED, "none")


def _row(found: Checkpoint, look: str, attempts: Sequence[Attempt], marks: Mapping[str, Mark], where: str) -> Row:
    users = [each for each in attempts if each.resumed_from == found.name and _was_there(found, each)]
    verdict, why = found.verdict or "not looked at", found.detail
    mark = marks.get(found.name)
    if mark is not None and mark.applies_to(found.written_at):
        verdict, why = QUARANTINED, mark.why
    facts = (found.name, found.step, found.step_from, found.kind, found.size, found.written_at, verdict, look, why)
    return Row(*facts, tuple(each.number for each in users), where)


def _was_there(found: Checkpoint, attempt: Attempt) -> bool:
    return attempt.started_at is None or found.written_at <= attempt.started_at
