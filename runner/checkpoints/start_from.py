"""Lets a new job begin at a checkpoint of another job: finds a healthy one, copies it here, gives it to the new job.

The copy lies where copies of a host's checkpoints lie (mirror.py), so the first attempt gets it on any machine.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.checkpoint_verdict import CheckpointVerdict
from rung.jobs.model.errors import HostError, UsageError
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.decide.checkpoint_choice import MIRROR, UNVERIFIED, Checkpoint, Unseen, choose_checkpoint
from rung.recovery.decide.resume_limit import resume_limit
from rung.runner.checkpoints.residences import Query, Source, residence_of, search
from rung.runner.checkpoints.shared_files import engines_with_files, fetch_checkpoint, first_answer
from rung.runner.checkpoints.verify import NewVerdict
from rung.runner.context import Context
from rung.runner.engines.process import ProcessEngine
from rung.runner.files.fingerprint import local_entry
from rung.runner.files.transfer import clear
from rung.runner.state.store import Store

AT_STEP = re.compile(r"(.+)@([0-9]{1,15})", re.DOTALL)


def parse_start(text: str) -> tuple[str, int | None]:
    """Return the job and the step of JOB[@STEP]."""
    found = AT_STEP.fullmatch(text)
    return (found[1], int(found[2])) if found else (text, None)


@dataclass(frozen=True)
class StartPoint:
    """A copy of a healthy checkpoint of another job."""

    job_id: str
    checkpoint: Checkpoint
    copy: Path

    def describe(self) -> dict[str, object]:
        """Return what the history of the new job says of it."""
        return {"from": {"job": self.job_id, "step": self.checkpoint.step, "file": self.checkpoint.name}}

    def give_to(self, store: Store, job: Job, paths: HomePaths) -> None:
        """Give the copy to a new job; part of the transaction that adds the job.

        Nobody writes into what is there, so that the jobs of a grid share the blocks of one copy.
        """
        folder = paths.mirror(job.id)
        folder.mkdir(parents=True, exist_ok=True)
        given = folder / self.copy.name
        clear(given)
        if self.copy.is_dir():
            shutil.copytree(self.copy, given, symlinks=True, copy_function=os.link)
        else:
            os.link(self.copy, given)
        entry, found = local_entry(given, sampled=False), self.checkpoint
        assert entry is not None, "it was a file or a folder when it was copied"
        verdict = CheckpointVerdict(found.verdict, found.step, found.detail, found.kind)
        store.put_verdict(job.id, entry.fingerprint, verdict)


@contextmanager
def start_point(context: Context, job: Job, step: int | None, specs: Sequence[JobSpec]) -> Iterator[StartPoint]:
    """Copy the newest healthy checkpoint of a job, or the one of a step; what is not given away is removed."""
    found = _find(context, job, step)
    for spec in specs:
        pattern = spec.checkpoint.pattern
        if not PurePath(found.name).match(spec.checkpoint.searched):
            raise UsageError(
                f"--from {job.id}: {found.name} does not match checkpoint.pattern of {spec.name}, {pattern}"
            )
        _refuse_overwriting(found, spec)
    with tempfile.TemporaryDirectory(dir=context.paths.home, prefix=".from-") as draft:
        yield StartPoint(job.id, found, _copy(context, job, found, Path(draft)))


def healthy_checkpoint(context: Context, job: Job, step: int | None = None) -> Checkpoint | None:
    """Return the newest healthy checkpoint of a job, up to a step, on its hosts or here; what is new is verified."""
    line = main_line(context.store.attempts(job.id))
    limit = step + 1 if step is not None else resume_limit(line, job.knobs)
    last_at = {residence_of(attempt): attempt for attempt in line}
    sources = [_source(context, job, attempt) for attempt in reversed(last_at.values())]
    verdicts, mirror = context.store.verdicts(job.id), context.paths.mirror(job.id)
    new: list[NewVerdict] = []
    sightings = search(sources, Query(job.spec.checkpoint.searched, line, limit, verdicts, mirror), new.append)
    with context.store.transaction():
        for fingerprint, verdict in new:
            if verdict.verdict != UNVERIFIED:
                context.store.put_verdict(job.id, fingerprint, verdict)
    return choose_checkpoint(sightings, line, limit).checkpoint


def _find(context: Context, job: Job, step: int | None) -> Checkpoint:
    context.store.refuse_removed(job.id)
    if not main_line(context.store.attempts(job.id)):
        raise UsageError(f"--from {job.id}: it has not been started, so it has no checkpoint")
    found = healthy_checkpoint(context, job, step)
    if found is None:
        raise UsageError(f"--from {job.id}: it has no healthy checkpoint{_before(step)}; `rung checkpoints` lists them")
    if step is not None and found.step != step:
        raise UsageError(
            f"--from {job.id}@{step}: it has no healthy checkpoint of step {step}; the one before it is of step "
            f"{found.step}"
        )
    return found


def _before(step: int | None) -> str:
    return f" up to step {step}" if step is not None else ""


def _source(context: Context, job: Job, last: Attempt) -> Source:
    # Given up: its copies here are then used, and nobody waits for the host.
    unseen = Unseen(last.host, "no answer", given_up=True)
    request = context.request(job, last)
    engines = context.engines
    try:
        found = engines_with_files(engines, job, last) if last.is_remote else [engines.of(last)]
        return Source(residence_of(last), found, request, unseen)
    except HostError as error:
        return Source(residence_of(last), (), request, replace(unseen, why=str(error)))


def _copy(context: Context, job: Job, found: Checkpoint, folder: Path) -> Path:
    """Copy a checkpoint into a folder of this machine."""
    line = main_line(context.store.attempts(job.id))
    last = next((each for each in reversed(line) if residence_of(each) == found.residence), line[-1])
    request = context.request(job, last)
    if found.residence != MIRROR and last.is_remote:
        engines = engines_with_files(context.engines, job, last)
        return first_answer(engines, lambda engine: fetch_checkpoint(engine, request, found.name, folder))
    source = replace(request, checkpoint_dir=context.paths.mirror(job.id)) if found.residence == MIRROR else request
    ProcessEngine().copy(source, replace(request, checkpoint_dir=folder), found.name)
    return folder / found.name


def _refuse_overwriting(found: Checkpoint, spec: JobSpec) -> None:
    """Refuse a folder of the user's own on this machine that has another checkpoint of this name."""
    folder = Path(spec.checkpoint.dir)
    if spec.is_remote or not folder.is_absolute():
        return
    for name in (found.name, spec.checkpoint.loaded_name(found.name)):
        there = local_entry(folder / name, sampled=False) if (folder / name).exists() else found
        if there is None or (there.size, there.written_at) != (found.size, found.written_at):
            raise UsageError(f"--from: {folder} has a {name} of its own; give another checkpoint.dir")
