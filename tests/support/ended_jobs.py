"""Writes jobs that have ended, with their files, straight into a home: for tests of what is removed and fetched."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.engine import DOCKER
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.store import Store

DAY = 86_400.0
IMAGE = f"example.org/train@sha256:{'0' * 64}"


class Shelf:
    """A home with jobs."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700, exist_ok=True)
        self.home, self.store = home, Store(home / "rung.db")

    def add(
        self, name: str, *, state: JobState = JobState.FAILED, days: float = 40, start: Any = None, **fields: Any
    ) -> str:
        """Add a job with one attempt, in this state for some days; `start` is the checkpoint that it began with."""
        at = time.time() - days * DAY
        spec = JobSpec.model_validate({"name": name, "run": "true --resume {checkpoint}", **fields})
        host = {"host": "ampere", "image": IMAGE, "engine": DOCKER} if spec.is_remote else {"host": "localhost"}
        with self.store.transaction():
            job = self.store.add_job(spec, self.home, at=at, about={"from": start} if start else None)
            attempt = Attempt(job.id, 1, asked=Knobs(), rung=None, because="", started_at=at, **host)
            self.store.put_attempt(replace(attempt, outcome=Outcome.FAULT, ended_at=at))
            path = {JobState.RUNNING: (JobState.LAUNCHING, JobState.RUNNING), JobState.QUEUED: ()}
            for each in path.get(state, (JobState.LAUNCHING, JobState.RUNNING, state)):
                self.store.move(job.id, each, reason="", at=at)
        self.write(job.id, "attempts/1/log", "step 1 loss 0.5\n")
        return job.id

    def write(self, job_id: str, path: str, text: str = "x" * 5000) -> Path:
        file = self.home / "jobs" / job_id / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def files(self, job_id: str) -> set[str]:
        folder = self.home / "jobs" / job_id
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
