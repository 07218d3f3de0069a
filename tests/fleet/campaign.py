"""What the tests of whole jobs on the fleet share: a home, controllers in processes of their own, waiting."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rung.jobs.job import Attempt, Job
from rung.jobs.model.paths import HomePaths, HostPaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.load import load_spec
from rung.runner.launch.submit import submit
from rung.runner.state.home import make_home
from rung.runner.state.store import Store
from tests import pace
from tests.fleet.fleet import Fleet
from tests.fleet.host import ACCOUNT

BIN = Path(sys.executable).parent
TRAININGS = Path(__file__).parent / "trainings"
# What takes longer than this at the usual pace will never come; tests/pace.py knows how far this machine is from it.
PATIENCE = 180.0
# Prints steps until it is told to finish; a shell is enough for whatever needs no checkpoint.
STEADY = "i=0; while [ ! -e /rung/job/finish ]; do i=$((i+1)); echo step $i loss 0.5; sleep 0.2; done"


class Campaign:
    """Jobs on a fleet: submit, let a controller work, and see in the store what came of it."""

    def __init__(self, folder: Path, fleet: Fleet) -> None:
        self.folder, self.fleet, self.home = folder, fleet, folder / "home"
        self._controllers: list[subprocess.Popen[bytes]] = []
        self._store: Store | None = None

    @property
    def env(self) -> dict[str, str]:
        own = {"RUNG_HOME": str(self.home), "RUNG_HOSTS": str(self.fleet.inventory), "HOME": str(self.folder)}
        return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **own}

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = Store(self.home / "rung.db")
        return self._store

    def rung(self, *words: str | Path, expect: int | None = 0) -> str:
        """Run a command and return what it printed; its exit code must be the expected one, where one is."""
        done = pace.run([BIN / "rung", *words], env=self.env, capture_output=True, text=True, usual=300)
        assert expect in (None, done.returncode), f"rung {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    # Jobs

    def submit(self, name: str, *wishes: str, **fields: Any) -> str:
        """Submit a job that prints steps until it is told to finish; fields of the job file may say otherwise."""
        spec: dict[str, Any] = {"name": name, "image": self.fleet.images["tiny"], "run": ["sh", "-c", STEADY]}
        spec |= {"resources": {"gpu": list(wishes)}, "workdir": self._workdir(name), **fields}
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(spec))
        # As `rung launch` does it, without a process for each.
        make_home(HomePaths(self.home))
        return submit(self.store, load_spec(file), self.folder, at=time.time()).id

    def train(self, name: str, *wishes: str, **fields: Any) -> str:
        """Submit a training with torch that writes checkpoints until it is told to finish."""
        shutil.copy(TRAININGS / "steady.py", self.folder / self._workdir(name))
        image = {"image": self.fleet.images["train"], "run": "python steady.py"}
        return self.submit(name, *wishes, **{**image, **fields})

    def _workdir(self, name: str) -> str:
        (self.folder / f"work-{name}").mkdir(exist_ok=True)
        return f"work-{name}"

    def finish(self, job_id: str) -> None:
        """Tell a job to finish, on whatever host its last attempt is; needs no link to the host."""
        last = self.last(job_id)
        folder = HostPaths(f"/home/{ACCOUNT}", self.store.store_id).job(job_id, last.residence)
        self.fleet.hosts[last.host].run("touch", f"{folder}/finish")

    # The controller

    def control(self) -> subprocess.Popen[bytes]:
        """Start a controller that stays."""
        log = (self.folder / "controller.log").open("ab")
        command = [str(BIN / "rung"), "controller"]
        self._controllers.append(subprocess.Popen(command, env=self.env, stdout=log, stderr=log))
        log.close()
        return self._controllers[-1]

    def kill_controller(self) -> None:
        """End the controller as a crash would: nothing is tidied up."""
        self._controllers[-1].send_signal(signal.SIGKILL)
        self._controllers[-1].wait()

    def close(self) -> None:
        for process in self._controllers:
            process.kill()
            process.wait()
        if self._store is not None:
            self._store.close()

    # Seeing

    def job(self, job_id: str) -> Job:
        return self.store.job(job_id)

    def attempts(self, job_id: str) -> list[Attempt]:
        return self.store.attempts(job_id)

    def last(self, job_id: str) -> Attempt:
        return self.store.attempts(job_id)[-1]

    def log(self, job_id: str, number: int) -> str:
        path = self.home / "jobs" / job_id / "attempts" / str(number) / "log"
        return path.read_text() if path.exists() else ""

    def steps(self, job_id: str, number: int) -> list[int]:
        return [int(step) for step in re.findall(r"step[ =](\d+) loss", self.log(job_id, number))]

    def running(self, job_id: str, number: int = 1, steps: int = 1) -> bool:
        """Tell whether an attempt runs and has come so far."""
        assert self.job(job_id).state is not JobState.FAILED, self.shown()
        is_it = self.job(job_id).state is JobState.RUNNING and self.last(job_id).number == number
        return is_it and len(self.steps(job_id, number)) >= steps

    def wait(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        try:
            return pace.until(condition, seconds, every=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.shown()}") from None

    def wait_for_end(self, job_id: str, state: JobState = JobState.SUCCEEDED) -> list[Attempt]:
        self.wait(lambda: self.job(job_id).ended)
        assert self.job(job_id).state is state, self.shown()
        return self.attempts(job_id)

    def shown(self) -> str:
        """Tell all that could matter to whoever reads a failure."""
        jobs = [f"{job.id} {job.state} {job.reason}" for job in self.store.jobs()]
        log = self.folder / "controller.log"
        said = log.read_text(errors="replace").splitlines()[-40:] if log.exists() else []
        return "\n".join([*jobs, *said])

    def containers(self, host: str) -> set[str]:
        """Return the jobs' containers that run on a host, as its own engine tells, by job and attempt."""
        labels = '{{.Label "rung.job"}}/{{.Label "rung.attempt"}}'
        said = self.fleet.hosts[host].docker("ps", "--filter", "label=rung.job", "--format", labels)
        return set(said.split())
