"""What the harness can do to jobs that run in containers on the hosts of a fleet.

All hosts share the kernel of this machine: it sees the processes in the containers, and one clock orders all ledgers.
The ledgers are in a folder of this machine that all hosts have, so they outlive every disk and every host.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.chaos.process_jobs import Live, ProcessJobs
from tests.chaos.random_jobs import TRAINING
from tests.fleet.fleet import Fleet
from tests.fleet.host import SHARED, Host

IN_CONTAINER = "/ledgers"
LABELS = ("rung.store", "rung.job", "rung.look")


class DockerJobs(ProcessJobs):
    """Finds, kills and removes the containers of jobs, and damages their files."""

    # A host takes any number of jobs without a GPU.
    most_at_once = 10_000
    jobs_at_once = 6

    def __init__(self, fleet: Fleet, folder: Path, home: Path, mark: str) -> None:
        super().__init__(fleet.shared / mark, home, mark)
        self.fleet, self._folder = fleet, folder
        # The hosts in which no process goes on.
        self.frozen: set[str] = set()
        self._names = {host.state()["Id"]: name for name, host in fleet.hosts.items()}
        self.ledgers.mkdir()
        # The jobs are another user there.
        self.ledgers.chmod(0o777)

    @property
    def env(self) -> dict[str, str]:
        return {"RUNG_HOSTS": str(self.fleet.inventory), "HOME": str(self._folder)}

    def job_fields(self, name: str, plan: Path, chance: random.Random) -> dict[str, Any]:
        work = plan.with_name(f"work-{name}")
        work.mkdir()
        shutil.copy(TRAINING, work)
        shutil.copy(plan, work / "plan.json")
        return {
            # It has a torch, with which checkpoints are verified.
            "image": self.fleet.images["train"],
            "workdir": work.name,
            "volumes": [f"{SHARED}/{self._mark}:{IN_CONTAINER}"],
            "run": ["python3", TRAINING.name, "--plan", "plan.json", "--ledger", f"{IN_CONTAINER}/{name}.ledger"],
            "checkpoint": {"mirror_every": chance.choice((5, 600, 600))},
            # Some jobs move while their host is away, most wait for it.
            "recovery": {"host_lost_after": chance.choice(("10s", "30m", "30m"))},
        }

    def as_logged(self, line: bytes) -> bytes:
        """Return a line as the engine keeps it: each byte that is no UTF-8 becomes U+FFFD."""
        return "".join(_characters(line)).encode()

    # Finding runs

    def live(self) -> list[Live]:
        found = []
        for pid in self.all_processes():
            # One that has just ended has no files any more.
            with suppress(OSError, KeyError, StopIteration):
                if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [TRAINING.name.encode()]:
                    env = _environment(pid)
                    where = self._host_of(pid)
                    found.append(Live(env["RUNG_JOB"], int(env["RUNG_ATTEMPT"]), pid, _first_of_container(pid), where))
        begun = {(run.start["job"], run.attempt) for run in self.unended()}
        return [live for live in found if live.host not in self.frozen and (live.job_id, live.attempt) in begun]

    def _host_of(self, pid: int) -> str:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
        return next(name for container, name in self._names.items() if container in groups)

    def _log(self, live: Live) -> Path:
        return Path(f"/proc/{live.pid}/fd/1")

    def _checkpoints(self, live: Live) -> Path:
        return Path(f"/proc/{live.pid}/root/rung/job/checkpoints")

    # Containers

    def kill_wrapper(self, live: Live) -> bool:
        """Kill the container from outside."""
        return self._act(live, "kill")

    def remove_container(self, live: Live) -> bool:
        return self._act(live, "rm", "--force", "--volumes")

    def _act(self, live: Live, *words: str) -> bool:
        host = self.fleet.hosts[live.host]
        labels = (f"label=rung.job={live.job_id}", f"label=rung.attempt={live.attempt}")
        ids = host.docker("ps", "--quiet", *(word for each in labels for word in ("--filter", each)), check=False)
        return bool(ids) and bool(host.docker(*words, *ids.split(), check=False))

    # What is there at the end

    def recorded_code(self, job_id: str, attempt: int) -> int | None:
        for host in self.fleet.hosts.values():
            for path in host.work.glob(f".rung/*/jobs/{job_id}/attempts/{attempt}/record/done.json"):
                with suppress(OSError, ValueError, KeyError):
                    return int(json.loads(path.read_bytes())["exit_code"])
        return None

    def leftovers(self) -> list[str]:
        return [line for host in self.fleet.hosts.values() for line in _left_on(host)]

    def all_is_over(self) -> bool:
        return not self.leftovers()

    def places_of_secrets(self) -> list[Path]:
        return [self.ledgers, *(host.work for host in self.fleet.hosts.values())]

    def close(self, keep_in: Path | None) -> None:
        if keep_in is not None:
            shutil.copytree(self.ledgers, keep_in / "ledgers")
        shutil.rmtree(self.ledgers)


def _left_on(host: Host) -> Iterator[str]:
    """Yield what Rung has left on a host besides files: containers, networks, folders with secrets in memory."""
    form = "{{.Names}} {{.Status}}"
    for line in host.docker("ps", "--all", "--filter", "label=rung.store", "--format", form).splitlines():
        yield f"container {line} on {host.name}"
    for name in host.docker("network", "ls", "--filter", "label=rung.store", "--format", "{{.Name}}").splitlines():
        yield f"network {name} on {host.name}"
    for name in host.run("ls", "/dev/shm").split():
        yield f"/dev/shm/{name} on {host.name}"


def _characters(line: bytes) -> Iterator[str]:
    """Yield the characters of a line as Go reads them: of bytes that are none, each is one U+FFFD."""
    at = 0
    while at < len(line):
        for size in (1, 2, 3, 4):
            with suppress(UnicodeDecodeError):
                yield line[at : at + size].decode("utf-8")
                at += size
                break
        else:
            yield "\ufffd"
            at += 1


def _environment(pid: int) -> dict[str, str]:
    words = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def _first_of_container(pid: int) -> int:
    """Return the first process of the container that a process is in, which ends the others with it."""
    while True:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
        fields = dict(line.split(":", 1) for line in status)
        if fields["NSpid"].split()[-1] == "1":
            return pid
        pid = int(fields["PPid"])
