"""A cluster as a host of Rung: a list of hosts that names it, and the commands of Rung with it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rung.jobs.job import Attempt, Job
from rung.jobs.model.engine import SLURM
from rung.jobs.model.state import JobState
from rung.runner.state.store import Store
from tests import pace
from tests.slurm.cluster import Cluster

BIN = Path(sys.executable).parent
# With torch, on a busy machine.
PATIENCE = 180.0
ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@dataclass
class SiteLab:
    """Jobs on the cluster of the tests: submit them, run a controller, and read the result from the store."""

    folder: Path
    cluster: Cluster
    engine = SLURM
    # The image of jobs, where the site starts containers.
    image = ""
    controllers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.list_site({"ansible_connection": "local"}, self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder / "shared"),
            "venv": str(BIN.parent),
            "poll": 1,
            "memory": "900m",
            "warn": 30,
        }

    def list_site(self, connection: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        host = {**connection, "rung_engine": "slurm", "rung_slurm": {**settings}}
        (self.folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"lab": host}}}))

    @property
    def env(self) -> dict[str, str]:
        own = {"RUNG_HOME": str(self.folder / "home"), "RUNG_HOSTS": str(self.folder / "hosts.yml")}
        path = f"{BIN}:{self.cluster.env()['PATH']}"
        return {**self.cluster.env(), **own, "PATH": path, "HOME": str(self.folder), "RUNG_CONTROLLER": "manual"}

    def rung(self, *words: str | Path, expect: int | None = 0) -> str:
        done = pace.run([BIN / "rung", *words], env=self.env, capture_output=True, text=True, usual=300)
        assert expect in (None, done.returncode), f"rung {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if expect else "")

    def submit(self, name: str, **fields: Any) -> str:
        (self.folder / name).mkdir(exist_ok=True)
        spec = {"name": name, "workdir": name, "slurm": {}, "resources": {"gpu": ["A100:1"]}, **fields}
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(spec))
        return json.loads(self.rung("launch", "--json", self.folder / f"{name}.yaml"))["id"]

    # A training for the stories

    def run(self, name: str, script: Path, **fields: Any) -> tuple[str, list[Attempt]]:
        (self.folder / name).mkdir()
        shutil.copy(script, self.folder / name / "train.py")
        job = self.submit(name, **fields)
        self.control()
        assert self.ended(job).state is JobState.SUCCEEDED, self.job(job).reason
        return job, self.attempts(job)

    def log(self, job: str, attempt: int) -> str:
        return self.rung("logs", job, "--attempt", str(attempt))

    # The controller

    def control(self) -> None:
        with (self.folder / "controller.log").open("ab") as log:
            command = [str(BIN / "rung"), "controller"]
            self.controllers.append(subprocess.Popen(command, env=self.env, stdout=log, stderr=log))

    def kill_controller(self) -> None:
        self.controllers[-1].send_signal(signal.SIGKILL)
        self.controllers[-1].wait()

    def close(self) -> None:
        for controller in self.controllers:
            controller.kill()
            controller.wait()
        self.cluster.run("scancel", "--user=root", "--signal=KILL", "--full", check=False)
        self.cluster.run("scancel", "--user=root", check=False)

    # Reading

    def job(self, job: str) -> Job:
        return self.store(lambda store: store.job(job))

    def attempts(self, job: str) -> list[Attempt]:
        return self.store(lambda store: store.attempts(job))

    def store(self, read: Any) -> Any:
        store = Store(self.folder / "home" / "rung.db")
        try:
            return read(store)
        finally:
            store.close()

    def ended(self, job: str) -> Job:
        def is_over() -> Job | None:
            found = self.job(job)
            return found if found.state in ENDED else None

        # A job may have many long attempts: it counts as stuck when nothing at all has happened for so long.
        def progress() -> object:
            return self.store(lambda store: len(store.events(job))), [each.furthest_step for each in self.attempts(job)]

        patience = pace.Patience(PATIENCE, progress)
        while not (found := is_over()):
            assert not patience.is_over(), f"not so after {patience}: {job} ends"
            time.sleep(0.1)
        return found

    def until_step(self, job: str, step: int, attempt: int = 1) -> None:
        path = self.folder / "home" / "jobs" / job / "attempts" / str(attempt) / "log"
        pace.until(lambda: path.exists() and f"step {step} " in path.read_text(), PATIENCE, f"{job} is at step {step}")

    def batch_jobs(self) -> list[dict[str, str]]:
        """Return all batch jobs of Rung that the cluster knows."""
        printed = self.cluster.run("squeue", "-h", "-t", "all", "-o", "%A|%j|%T|%k")
        rows = [line.split("|") for line in printed.splitlines()]
        return [dict(zip(("number", "name", "state", "mark"), row, strict=True)) for row in rows if row[3] != "(null)"]
