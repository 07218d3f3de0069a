"""Knows the file that a job came from: tells whether it has changed since, and reads an edited one for a retry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rung.jobs.job import Job
from rung.jobs.model.errors import ConfigFileError, SpecError, UsageError
from rung.jobs.model.event import EventKind
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.launch.file_values import with_file_values
from rung.runner.launch.grid import load_with
from rung.runner.state.store import Store


@dataclass(frozen=True)
class JobFile:
    """A job file as it is now."""

    path: Path
    spec: JobSpec

    @classmethod
    def load(cls, path: Path, settings: Mapping[str, str] | None = None) -> JobFile:
        """Read a job file; `settings` is what the grid sets for a job that belongs to one."""
        return cls(path.absolute(), load_with(path, settings or {}))

    @property
    def origin(self) -> Path:
        """Return the folder that its workdir is relative to."""
        return self.path.parent

    def complete(self) -> JobSpec:
        """Return the spec as it is stored: with the knobs that only the config files of the script state."""
        return with_file_values(self.spec, self.origin / self.spec.workdir)


def file_of(store: Store, job: Job) -> Path | None:
    """Return the file that a job was last read from; None: an older Rung has not written it down."""
    kinds = (EventKind.SUBMITTED, EventKind.RETRIED)
    known = [event.data["file"] for event in store.events(job.id) if event.kind in kinds and "file" in event.data]
    return Path(known[-1]) if known else None


def changed_since(store: Store, job: Job) -> str | None:
    """Return a note if the file of a job says something else than what is stored; None if not, or if it is gone."""
    path = file_of(store, job)
    if path is None or not path.is_file():
        return None
    try:
        now = JobFile.load(path, store.settings_of(job.id)).complete().model_dump_json()
    except (SpecError, ConfigFileError, UsageError):
        now = "not valid any more"
    if now == job.spec.model_dump_json():
        return None
    return f"note: {job.id} runs as it is stored, and {path} has changed since: --file {path} takes it as it is now"


def refuse_other_job(job: Job, edited: JobSpec) -> None:
    """Refuse an edited file under which the history or the checkpoints of a job would not be found any more."""
    advice = "launch it as a new job"
    if edited.name != job.spec.name:
        raise UsageError(f"--file: its name is {edited.name!r}, and {job.id} is {job.spec.name!r}; {advice}")
    if job.refused:
        return  # What is stored is not known in full.
    if edited.is_remote != job.spec.is_remote:
        where = "on this machine" if job.spec.is_remote else "in an image on a host"
        raise UsageError(f"--file: it would run {where}, away from the checkpoints of {job.id}; {advice}")
    if edited.checkpoint.dir != job.spec.checkpoint.dir:
        raise UsageError(f"--file: checkpoint.dir is not that of {job.id}, whose checkpoints would be lost; {advice}")
