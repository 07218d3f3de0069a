"""What the harness can do to jobs that run as batch jobs of a Slurm cluster.

All nodes are this machine, and so is the shared file system: processes, ledgers and the clock are those of here.
A node tracks the processes of a batch job by control groups, as those of a real cluster do: none escapes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tests.chaos.process_jobs import Live, ProcessJobs
from tests.chaos.random_jobs import TRAINING
from tests.slurm.cluster import NODES, Cluster

LEAN = Path(__file__).parents[1] / "lean"
# What Slurm writes into the log of a batch job that it ends, and our wrapper where it is started a second time.
NOT_OF_THE_JOB = re.compile(rb"slurmstepd(-\S+)?: error: |rung: this attempt has been started before")
UNENDED = "PENDING,RUNNING,SUSPENDED,COMPLETING,CONFIGURING,REQUEUED"


@contextlib.contextmanager
def cluster_of_its_own() -> Iterator[Cluster]:
    """Start a cluster whose nodes nobody else has, and take it down."""
    nodes = [replace(node, name=f"{node.name}{os.getpid()}") for node in NODES]
    # Its sockets must be open to every user, so its folder is, too.
    with tempfile.TemporaryDirectory(prefix="rung-slurm-") as name:
        Path(name).chmod(0o755)
        cluster = Cluster(Path(name), "cgroup", nodes)
        try:
            yield cluster.up()
        finally:
            cluster.down()


class SlurmJobs(ProcessJobs):
    """Finds, kills and cancels the batch jobs of attempts, and damages their files."""

    # A cluster takes any number of jobs.
    most_at_once = 10_000
    jobs_at_once = 6

    def __init__(self, cluster: Cluster, folder: Path, home: Path, mark: str) -> None:
        super().__init__(folder, home, mark)
        self.cluster, self._folder, self._shared = cluster, folder, folder / "shared"
        settings = {"folder": str(self._shared), "venv": sys.prefix, "poll": 1, "memory": "900m", "warn": 30}
        host = {"ansible_connection": "local", "rung_engine": "slurm", "rung_slurm": settings}
        (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"lab": host}}}), encoding="utf-8")
        self._shared.mkdir()

    @property
    def env(self) -> dict[str, str]:
        hosts = str(self._folder / "hosts.yml")
        return {"RUNG_HOSTS": hosts, "HOME": str(self._folder), "SLURM_CONF": str(self.cluster.config)}

    def job_fields(self, name: str, plan: Path, chance: random.Random) -> dict[str, Any]:
        work = plan.with_name(f"work-{name}")
        work.mkdir()
        shutil.copy(TRAINING, work)
        shutil.copy(plan, work / "plan.json")
        words = [sys.executable, TRAINING.name, "--plan", "plan.json", "--ledger", str(self.ledger(name))]
        made: dict[str, Any] = {"workdir": work.name, "run": words, "slurm": {}, "envs": {"PYTHONPATH": str(LEAN)}}
        # For those jobs that get a GPU; there are two of these.
        return {**made, "resources": {"gpu": "P100:1"}}

    def is_not_of_the_job(self, line: bytes) -> bool:
        return NOT_OF_THE_JOB.match(line) is not None

    # Finding runs

    def live(self) -> list[Live]:
        found = []
        for live in super().live():
            # One that has just ended has no files any more.
            with suppress(OSError, KeyError):
                env = _environment(live.pid)
                found.append(replace(live, host=env["SLURMD_NODENAME"]))
        return found

    def _log(self, live: Live) -> Path:
        return self._folder_of(live.job_id, live.attempt) / "log"

    def _folder_of(self, job_id: str, attempt: int) -> Path:
        return next(self._shared.glob(f"*/jobs/{job_id}/attempts/{attempt}/record"))

    def _checkpoints(self, live: Live) -> Path:
        with suppress(OSError, KeyError):
            return Path(_environment(live.pid)["RUNG_CHECKPOINT_DIR"])
        return self._folder / "it has just ended"

    # Batch jobs

    def kill_wrapper(self, live: Live) -> bool:
        """Kill the batch script, which is no process of the job itself."""
        with suppress(OSError, IndexError):
            while live.pid > 1:
                # Slurm starts a copy of the script.
                if Path(f"/proc/{live.pid}/cmdline").read_bytes().split(b"\0")[1].endswith(b"/slurm_script"):
                    os.kill(live.pid, 9)
                    return True
                live = replace(live, pid=_parent(live.pid))
        return False

    def number_of(self, live: Live) -> str | None:
        """Return the number of the batch job of an attempt that runs."""
        with suppress(OSError, KeyError):
            return _environment(live.pid)["SLURM_JOB_ID"]
        return None

    def command(self, *words: str) -> bool:
        """Run a command as an administrator of the cluster, and tell whether it worked."""
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(words, env=self.cluster.env(), capture_output=True, timeout=60, check=False)
            return done.returncode == 0
        return False

    # What is there at the end

    def recorded_code(self, job_id: str, attempt: int) -> int | None:
        with suppress(StopIteration, OSError, ValueError, KeyError):
            return int(json.loads((self._folder_of(job_id, attempt) / "done.json").read_bytes())["exit_code"])
        return None

    def leftovers(self) -> list[str]:
        listed = self.cluster.run("squeue", "-h", "-t", UNENDED, "-o", "%A %j %T", check=False).splitlines()
        left = [f"batch job {line}" for line in listed if " rung-" in line]
        return [*left, *(f"folder {path.name}" for path in self._shared.glob("*/jobs/*/rung-short-*"))]

    def all_is_over(self) -> bool:
        return not self.leftovers()

    def places_of_secrets(self) -> list[Path]:
        return [self._shared]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])


def _environment(pid: int) -> dict[str, str]:
    words = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)
