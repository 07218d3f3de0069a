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

    def attempt(self, job_id: str, number: int) -> AttemptPaths:
        return AttemptPaths(self.job(job_id) / "attempts" / str(number))

    def checkpoints(self, job_id: str, folder: str) -> Path:
        """Return the checkpoint folder; an absolute one stays as the job file says."""
        return self.job(job_id) / folder
