"""Gives tests a home in which commands start controllers in the background, and ends them and their jobs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import yaml

from rung.jobs.job import Attempt, Job
from rung.jobs.model.paths import AttemptPaths, HomePaths
from rung.runner.state.owner import find_owner, stop_owner
from rung.runner.state.store import Store

# Prints steps until the file that GO names exists.
STEADY = 'i=0; while [ ! -e "$GO" ]; do i=$((i+1)); echo "step $i loss 0.5"; sleep 0.1; done; echo "step 9999 loss 0.1"'


class Watched:
    """A home whose controllers start by themselves."""

    def __init__(self, home: Path, wait: Callable[..., Any]) -> None:
        self.home, self.paths, self.wait = home, HomePaths(home), wait
        self.go = home.parent / "go"

    def job_file(self, name: str = "steady", script: str = STEADY, **fields: Any) -> Path:
        file = self.home.parent / f"{name}.yaml"
        spec = {"name": name, "run": ["sh", "-c", script], "envs": {"GO": str(self.go)}, **fields}
        file.write_text(yaml.safe_dump(spec), encoding="utf-8")
        return file

    @property
    def pid(self) -> int:
        """The controller; 0 if there is none."""
        owner = find_owner(self.paths)
        return owner.pid if owner is not None else 0

    def job(self, job_id: str) -> Job:
        with closing(Store(self.paths.store)) as store:
            return store.job(job_id)

    def attempts(self, job_id: str) -> list[Attempt]:
        with closing(Store(self.paths.store)) as store:
            return list(store.attempts(job_id))

    def wait_for(self, job_id: str, state: str) -> None:
        self.wait(lambda: self.job(job_id).state == state)

    def files(self, job_id: str, attempt: int = 1) -> AttemptPaths:
        return self.paths.attempt(job_id, attempt)

    def group(self, job_id: str, attempt: int = 1) -> int:
        """Return the process group of an attempt."""
        return int(json.loads(self.files(job_id, attempt).running.read_bytes())["group"])

    def kill_controller(self) -> int:
        """Kill the controller without a warning, and return its pid."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        self.wait(lambda: not self.pid)
        return pid

    def close(self) -> None:
        """Stop the controller, and let the jobs end."""
        self.go.touch()
        if self.home.exists():
            stop_owner(self.paths)
        for running in self.home.glob("jobs/*/attempts/*/running.json"):
            done = running.with_name("done.json")
            group = int(json.loads(running.read_bytes())["group"])
            with suppress(ProcessLookupError):
                if not done.exists():
                    os.killpg(group, signal.SIGKILL)
