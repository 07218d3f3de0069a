"""Runs whole jobs on the fleet for tests: a home, controllers in their own processes, and waits."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import yaml

from rung.jobs.job import Attempt, Job
from rung.jobs.model.paths import HomePaths, HostPaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.load import load_spec
from rung.runner.launch.submit import submit
from rung.runner.state.home import make_home
from rung.runner.state.store import Store
from tests import pace

BIN = Path(sys.executable).parent
TRAININGS = Path(__file__).parent / "trainings"
# The longest wait in seconds; on a slow machine tests/pace.py makes it longer.
PATIENCE = 180.0
# Prints steps until the file `finish` exists; without checkpoints a shell is enough.
STEADY = "i=0; while [ ! -e /rung/job/finish ]; do i=$((i+1)); echo step $i loss 0.5; sleep 0.2; done"


class OneHost(Protocol):
    """A host that a campaign can look at; `run` and `docker` work as root, without the link."""

    @property
    def home(self) -> str:
        """The account's home, as its path on the host."""
        ...

    def run(self, *argv: object) -> str: ...

    def docker(self, *words: object) -> str: ...


class Hosts(Protocol):
    """What a campaign needs of a fleet. Tests that cut links or power need a whole one."""

    @property
    def hosts(self) -> Mapping[str, OneHost]: ...

    @property
    def images(self) -> Mapping[str, str]: ...

    @property
    def inventory(self) -> Path: ...

    @property
    def ssh_config(self) -> Path: ...


class Campaign:
    """Jobs on a fleet: submit them, run a controller, and read the result from the store."""

    def __init__(self, folder: Path, fleet: Hosts) -> None:
        self.folder, self.fleet, self.home = folder, fleet, folder / "home"
        self._controllers: list[subprocess.Popen[bytes]] = []
        self._store: Store | None = None

    @property
    def env(self) -> dict[str, str]:
        own = {"RUNG_HOME": str(self.home), "RUNG_HOSTS": str(self.fleet.inventory), "HOME": str(self.folder)}
        return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **own, "RUNG_CONTROLLER": "manual"}

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = Store(self.home / "rung.db")
        return self._store

    def rung(self, *words: str | Path, expect: int | None = 0) -> str:
        """Run a command and return its output; check its exit code unless None is expected."""
        done = pace.run([BIN / "rung", *words], env=self.env, capture_output=True, text=True, usual=300)
        assert expect in (None, done.returncode), f"rung {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    # Jobs

    def submit(self, name: str, *gpus: str, start: str = "", **fields: Any) -> str:
        """Submit a job that prints steps until `finish` is called; fields of the job file can replace that.

        `start`: the checkpoint of another job that it begins at.
        """
        spec: dict[str, Any] = {"name": name, "image": self.fleet.images["tiny"], "run": ["sh", "-c", STEADY]}
        spec |= {"resources": {"gpu": list(gpus)}, "workdir": self._workdir(name), **fields}
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(spec))
        if start:
            return json.loads(self.rung("launch", "--json", file, "--from", start))["id"]
        # Like `rung launch`, but without a new process for each job.
        make_home(HomePaths(self.home))
        return submit(self.store, load_spec(file), self.folder, at=time.time()).id

    def train(self, name: str, *gpus: str, **fields: Any) -> str:
        """Submit a training with torch that writes checkpoints until `finish` is called."""
        shutil.copy(TRAININGS / "steady.py", self.folder / self._workdir(name))
        image = {"image": self.fleet.images["train"], "run": "python steady.py"}
        return self.submit(name, *gpus, **{**image, **fields})

    def _workdir(self, name: str) -> str:
        (self.folder / f"work-{name}").mkdir(exist_ok=True)
        return f"work-{name}"

    def away_for_long(self) -> str:
        """Return a `host_lost_after` that is over soon, but is longer than a busy machine keeps a host waiting."""
        return f"{pace.seconds(20):.0f}s"

    def finish(self, job_id: str) -> None:
        """End a job on the host of its last attempt; this works also while the link to the host is cut."""
        last = self.last(job_id)
        host = self.fleet.hosts[last.host]
        folder = HostPaths(host.home, self.store.store_id).job(job_id, last.residence)
        host.run("touch", f"{folder}/finish")

    # The controller

    def control(self, **env: str) -> subprocess.Popen[bytes]:
        """Start a controller that runs until the test ends, with more variables if needed."""
        log = (self.folder / "controller.log").open("ab")
        command = [str(BIN / "rung"), "controller"]
        self._controllers.append(subprocess.Popen(command, env={**self.env, **env}, stdout=log, stderr=log))
        log.close()
        return self._controllers[-1]

    def kill_controller(self) -> None:
        """Kill the controller without cleanup, like a crash."""
        self._controllers[-1].send_signal(signal.SIGKILL)
        self._controllers[-1].wait()

    def close(self) -> None:
        for process in self._controllers:
            process.kill()
            process.wait()
        if self._store is not None:
            self._store.close()

    # Reading

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
        """Return whether an attempt runs and has printed this many steps."""
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
        """Return the jobs and the end of the controller's log, for the message of a failure."""
        jobs = [f"{job.id} {job.state} {job.reason}" for job in self.store.jobs()]
        log = self.folder / "controller.log"
        lines = log.read_text(errors="replace").splitlines()[-40:] if log.exists() else []
        return "\n".join([*jobs, *lines])

    def probes(self, host: str) -> set[str]:
        """Return the names of the temporary containers on a host, running or not."""
        output = self.fleet.hosts[host].docker("ps", "--all", "--filter", "label=rung.look", "--format", "{{.Names}}")
        return set(output.split())

    def kill(self, job_id: str) -> None:
        """Kill the container of a job's last attempt, as a failing machine would."""
        last = self.last(job_id)
        labels = (f"label=rung.job={job_id}", f"label=rung.attempt={last.number}")
        host = self.fleet.hosts[last.host]
        found = host.docker("ps", "--quiet", *(word for label in labels for word in ("--filter", label)))
        host.docker("kill", *found.split())

    def containers(self, host: str) -> set[str]:
        """Return the containers of jobs that run on a host, as job and attempt, from the list of its engine."""
        labels = '{{.Label "rung.job"}}/{{.Label "rung.attempt"}}'
        output = self.fleet.hosts[host].docker("ps", "--filter", "label=rung.job", "--format", labels)
        return set(output.split())
