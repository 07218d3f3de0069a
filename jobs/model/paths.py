"""Owns every file name of the store: the one place that spells where a job's things lie. Touches no disk."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

UNSAFE = re.compile(r"[^a-z0-9]+")


def job_id(name: str, sequence: int) -> str:
    """Return an id that is safe as a file name and in a shell, whatever the job is called."""
    plain = UNSAFE.sub("-", name.lower()).strip("-")[:40].strip("-") or "job"
    return f"{plain}-{sequence}"


@dataclass(frozen=True)
class AttemptPaths:
    """The files of one launch. The wrapper inside the job knows these names too."""

    folder: Path

    @property
    def number(self) -> int:
        return int(self.folder.name)

    @property
    def job_folder(self) -> Path:
        return self.folder.parents[1]

    @property
    def job_id(self) -> str:
        return self.job_folder.name

    @property
    def home(self) -> Path:
        return self.folder.parents[3]

    @property
    def request(self) -> Path:
        return self.folder / "request.json"

    @property
    def claim(self) -> Path:
        return self.folder / "claim.json"

    @property
    def running(self) -> Path:
        return self.folder / "running.json"

    @property
    def done(self) -> Path:
        return self.folder / "done.json"

    @property
    def stop(self) -> Path:
        return self.folder / "stop"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def work(self) -> Path:
        """The attempt's own copy of the workdir, where it has one on this machine."""
        return self.folder / "work"

    @property
    def cursor(self) -> Path:
        """How much of the log of an attempt on a host is here."""
        return self.folder / "cursor.json"


@dataclass(frozen=True)
class HomePaths:
    """The files of one RUNG_HOME."""

    home: Path

    @property
    def store(self) -> Path:
        return self.home / "rung.db"

    @property
    def lock(self) -> Path:
        return self.home / "controller.lock"

    @property
    def secrets(self) -> Path:
        return self.home / "secrets"

    def job(self, job_id: str) -> Path:
        return self.home / "jobs" / job_id

    def validation(self, name: str) -> Path:
        """Return where the report of a validation lies."""
        return self.home / "validations" / name

    def attempt(self, job_id: str, number: int) -> AttemptPaths:
        return AttemptPaths(self.job(job_id) / "attempts" / str(number))

    def mirror(self, job_id: str) -> Path:
        """Return where copies of checkpoints lie that were written on a host."""
        return self.job(job_id) / "mirror"

    def checkpoints(self, job_id: str, folder: str) -> Path:
        """Return the checkpoint folder; an absolute one stays as the job file says."""
        return self.job(job_id) / folder


# Where a container finds its things. The wrapper and the code inside know these names too.
IN_WORK = "/rung/work"
IN_JOB = "/rung/job"
IN_RECORD = "/rung/record"
IN_INSIDE = "/rung/inside"
IN_SECRETS = "/rung/secrets"


@dataclass(frozen=True)
class HostPaths:
    """The folders of one store on a host, in the account's own home."""

    home: str
    store_id: str

    @property
    def root(self) -> str:
        return f"{self.home}/.rung/{self.store_id}"

    @property
    def trees(self) -> str:
        """What was shipped, each content once; never written to again."""
        return f"{self.root}/trees"

    def job(self, job_id: str, residence: int) -> str:
        """Return what a job writes and keeps for its next attempt: its checkpoints lie here."""
        return f"{self.root}/jobs/{job_id}/stays/{residence}"

    def attempt(self, job_id: str, number: int) -> str:
        return f"{self.root}/jobs/{job_id}/attempts/{number}"

    def work(self, job_id: str, number: int) -> str:
        """Return the attempt's own copy of what was shipped."""
        return f"{self.attempt(job_id, number)}/work"

    def record(self, job_id: str, number: int) -> str:
        """Return where the wrapper writes how the attempt ended."""
        return f"{self.attempt(job_id, number)}/record"
