"""Where a run takes place: a home that can be full, its controllers, and the commands that people type."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.chaos.docker_jobs import DockerJobs
from tests.chaos.process_jobs import ProcessJobs
from tests.chaos.random_jobs import MARK, SECRET, write_job
from tests.chaos.slurm_jobs import SlurmJobs
from tests.fleet.fleet import Fleet
from tests.slurm.cluster import Cluster
from tests.support.stand_in_gpus import stand_in_gpus

ROOT = Path(__file__).parents[2]
RUNG = Path(sys.executable).parent / "rung"
GPUS = 2
# Only these of the machine's variables would reach a job, or lead to other hosts than those of the fleet.
NOT_PASSED = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "RUNG_HOSTS", "RUNG_KNOWN_HOSTS", "SSH_AUTH_SOCK")
# Room for what one fault brings with it: jobs, their logs and checkpoints.
MEGABYTES, BYTES_A_FAULT = 48, 64 << 10


@dataclass
class Command:
    """A command that a person typed, and what came of it; `code` None: it has not ended."""

    words: tuple[str, ...]
    job: str
    process: subprocess.Popen[bytes]
    output: Path
    code: int | None = None


@dataclass
class Journal:
    """What the harness did."""

    faults: Counter[str] = field(default_factory=Counter)
    commands: list[Command] = field(default_factory=list)
    # What was done to an attempt, and the first attempt of a job of which a checkpoint was damaged too late to tell.
    attempts: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    damaged_late: dict[str, int] = field(default_factory=dict)
    # The lines put into logs, and when the disk was full (seconds since 1970).
    garbage: set[bytes] = field(default_factory=set)
    full: list[tuple[float, float]] = field(default_factory=list)
    # What happened to which host, from when to when.
    hosts: list[tuple[str, str, float, float]] = field(default_factory=list)
    controllers: list[str] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)

    def mark(self, job_id: str, attempt: int, kind: str) -> None:
        self.attempts.setdefault((job_id, attempt), set()).add(kind)


class Lab:
    """A home, its controller, and its jobs."""

    def __init__(self, folder: Path, seed: int, faults: int, place: Fleet | Cluster | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.seed = folder, seed
        self.home, self.store = folder / "home", folder / "home" / "rung.db"
        self.mark, self.token = f"{os.getpid()}-{time.monotonic_ns()}", f"chaos-secret-{os.urandom(8).hex()}"
        self.jobs: list[tuple[str, Path]] = []
        self.journal = Journal()
        self.controller: subprocess.Popen[bytes] | None = None
        # How many seconds a controller needs to begin; 0: not known yet.
        self.slowness = self._started = 0.0
        self.runs: ProcessJobs = ProcessJobs(folder, self.home, self.mark)
        if isinstance(place, Fleet):
            self.runs = DockerJobs(place, folder, self.home, self.mark)
        elif place is not None:
            self.runs = SlurmJobs(place, folder, self.home, self.mark)
        self.home.mkdir(mode=0o700)
        size = (MEGABYTES << 20) + BYTES_A_FAULT * faults
        options = ["-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(self.home)]
        self.can_be_full = (
            os.geteuid() == 0 and subprocess.run(["mount", *options], capture_output=True).returncode == 0
        )
        stand_in_gpus(folder / "bin", GPUS)
        (folder / "tmp").mkdir()
        self.env = self._environment()

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(self.folder / "bin"), str(RUNG.parent), os.environ.get("PATH", os.defpath)])
        own = {"RUNG_HOME": str(self.home), "RUNG_CONTROLLER": "manual", **self.runs.env}
        secret = {SECRET: self.token, "RUNG_SECRETS": SECRET, MARK: self.mark, "TMPDIR": str(self.folder / "tmp")}
        kept = {name: value for name, value in os.environ.items() if name not in NOT_PASSED}
        return {**kept, **own, **secret, "PYTHONPATH": str(ROOT / "tests" / "lean"), "PATH": path}

    def note(self, text: str) -> None:
        """Keep what was done and when, for whoever looks into a violation."""
        with (self.folder / "faults.log").open("a", encoding="utf-8") as log:
            log.write(f"{datetime.now():%H:%M:%S.%f} {text}\n")

    # Controllers

    def start_controller(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a controller that writes into a file of its own."""
        number = len(list(self.folder.glob("controller-*.log")))
        with (self.folder / f"controller-{number}.log").open("wb") as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            process = subprocess.Popen([RUNG, "controller", *words], env=self.env, cwd=self.folder, **streams)
        process.log = log.name  # type: ignore[attr-defined]
        self._started = time.monotonic()
        return process

    def is_attended(self) -> bool:
        """Tell whether the controller has said that it has begun; the first time shows how slow this machine is."""
        running = self.controller is not None and self.controller.poll() is None
        if not running or not Path(self.controller.log).stat().st_size:  # type: ignore[union-attr]
            return False
        self.slowness = self.slowness or min(max(1.0, time.monotonic() - self._started), 3.0)
        return True

    def attend(self) -> None:
        """Have a controller run. One that nobody killed and that has ended is noted."""
        if self.controller is not None and self.controller.poll() is not None:
            self.note_end(self.controller)
            self.controller = None
        if self.controller is None:
            self.controller = self.start_controller()

    def note_end(self, process: subprocess.Popen[bytes]) -> None:
        path = Path(process.log)  # type: ignore[attr-defined]
        last = (path.read_text(encoding="utf-8", errors="replace").splitlines() or ["no output"])[-1]
        self.journal.controllers.append(f"exit code {process.returncode}, {path.name}: {last[:200]}")

    def kill_controller(self) -> bool:
        if self.controller is None or self.controller.poll() is not None:
            return False
        self.controller.kill()
        self.controller.wait()
        self.controller = None
        return True

    # Commands

    def type(self, *words: str, job: str = "") -> Command:
        """Start a command as a person would; `reap` takes in how it ended."""
        output = self.folder / f"command-{len(self.journal.commands)}"
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen(
                [RUNG, *words], env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        self.journal.commands.append(Command(words, job, process, output))
        return self.journal.commands[-1]

    def reap(self) -> int:
        """Take in the commands that have ended, and return how many have not."""
        for command in self.journal.commands:
            if command.code is None:
                command.code = command.process.poll()
        return sum(command.code is None for command in self.journal.commands)

    def launch(self) -> None:
        """Submit the next random job."""
        name, file = write_job(self.folder, self.runs.job_fields, self.seed, len(self.jobs), self.mark)
        self.jobs.append((name, file))
        self.type("launch", "--json", str(file), job=name)

    def read(self, question: str) -> list[tuple[Any, ...]]:
        """Ask the store; nothing while it cannot be read."""
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self._connect()) as store:
            return store.execute(question).fetchall()
        return []

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=1)

    def states(self) -> dict[str, str]:
        return dict(self.read("SELECT id, state FROM jobs"))

    def given_up(self) -> list[str]:
        """Return the attempts that were given up with their hosts and have not been ended there."""
        return [" ".join(map(str, row)) for row in self.read("SELECT job_id, attempt, host FROM stale")]

    def progress(self) -> object:
        """Return what changes while anything goes on."""
        sizes = [path.stat().st_size for path in self.runs.ledgers.glob("*.ledger")]
        return sum(sizes), self.read("SELECT count(*), max(seq) FROM events")

    # The end

    def close(self, *, keep: bool) -> None:
        """End all processes of this run, and remove its files, or keep a copy where the mount was."""
        for pid in self.runs.all_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in [self.controller, *(command.process for command in self.journal.commands)]:
            if process is not None:
                process.wait()
        if self.can_be_full:
            if keep:
                shutil.copytree(self.home, self.folder / "home.kept", symlinks=True)
            subprocess.run(["umount", "--lazy", str(self.home)], check=True)
            if keep:
                self.home.rmdir()
                (self.folder / "home.kept").rename(self.home)
        self.runs.close(self.folder if keep else None)
        if not keep:
            shutil.rmtree(self.folder)


@contextlib.contextmanager
def exclusive(store: Path) -> Iterator[sqlite3.Connection]:
    """Hold the store locked, as another program would that has it open."""
    with contextlib.closing(sqlite3.connect(store, timeout=5, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield connection
        connection.execute("ROLLBACK")
