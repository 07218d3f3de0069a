"""A scratch home with hosts on the loopback, some of them hostile, and the real product against them.

The controller runs in a process of its own, so that its memory can be measured and a crash is seen.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rung.jobs.job import Job
from rung.jobs.model.event import EventKind
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.load import load_spec
from rung.runner.engines.docker.engine import DockerEngine
from rung.runner.launch.submit import submit
from rung.runner.ssh.remote import Remotes
from rung.runner.state.home import make_home
from rung.runner.state.store import Store
from tests import pace
from tests.support.hostile_engine import HostileEngine
from tests.support.hostile_ssh import HostileHost
from tests.support.sshd import keygen

BIN = Path(sys.executable).parent
IMAGE = f"train@sha256:{'0' * 64}"
PATIENCE = 120.0
MOST_MEMORY = 4 << 30


class HostileSite:
    """The home of a user of Rung, and the hosts in the list of hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user_home, self.rung_home = folder / "user", folder / "user" / "rung"
        (self.user_home / ".ssh").mkdir(parents=True, mode=0o700)
        keygen(self.user_home / ".ssh" / "id_ed25519")
        self.hosts: dict[str, HostileHost] = {}
        self._listed: dict[str, dict[str, Any]] = {}
        self._others: list[Any] = []
        self._store: Store | None = None
        self._remotes: Remotes | None = None
        self._engines: list[DockerEngine] = []
        self._controllers: list[subprocess.Popen[bytes]] = []

    def add(self, name: str) -> HostileHost:
        """Start a host whose only GPU has the type of its name, so that a job can ask for it."""
        host = self.hosts[name] = HostileHost(self.folder / "hosts" / name, name, gpu=name.upper())
        self._list(name, host.port, host.known_line)
        return host

    def add_honest(self, name: str, lines: int) -> None:
        """Start an honest host in a process of its own, which nothing that happens here slows down."""
        words = [
            sys.executable,
            "-m",
            "tests.support.hostile_site",
            str(self.folder / "hosts" / name),
            name,
            str(lines),
        ]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started = subprocess.Popen(words, **pipes, cwd=Path(__file__).parents[2], text=True)  # type: ignore[call-overload]
        self._others.append(started)
        port, known_line = json.loads(started.stdout.readline())
        self._list(name, port, known_line)

    def _list(self, name: str, port: int, known_line: str) -> None:
        self._listed[name] = {"ansible_host": "127.0.0.1", "ansible_user": "rung", "ansible_port": port}
        with (self.user_home / ".ssh" / "known_hosts").open("a") as file:
            file.write(known_line)
        self.inventory.write_text(yaml.safe_dump({"all": {"hosts": self._listed}}))

    @property
    def inventory(self) -> Path:
        return self.folder / "hosts.yml"

    @property
    def env(self) -> dict[str, str]:
        own = {"RUNG_HOME": str(self.rung_home), "RUNG_HOSTS": str(self.inventory), "HOME": str(self.user_home)}
        kept = {name: value for name, value in os.environ.items() if name not in ("SSH_AUTH_SOCK", "RUNG_KNOWN_HOSTS")}
        return {**kept, "PATH": f"{BIN}:{os.environ['PATH']}", **own}

    def close(self) -> None:
        for process in self._controllers:
            process.kill()
            process.wait()
        for other in self._others:
            # The end of its input ends it.
            other.communicate()
        for host in self.hosts.values():
            host.close()
        for engine in self._engines:
            engine.close()
        if self._remotes:
            self._remotes.close()
        if self._store:
            self._store.close()

    # The parts of the product in this process

    def remote(self, name: str) -> Any:
        if self._remotes is None:
            self._remotes = Remotes([each.host() for each in self.hosts.values()], self.user_home, self.env)
        return self._remotes.remote(name)

    def docker(self, name: str) -> DockerEngine:
        """Return a new engine over the one connection to a host."""
        self._engines.append(DockerEngine(self.remote(name), "store"))
        return self._engines[-1]

    # Whole jobs

    @property
    def store(self) -> Store:
        if self._store is None:
            make_home(HomePaths(self.rung_home))
            self._store = Store(self.rung_home / "rung.db")
        return self._store

    def submit(self, host: str, **fields: Any) -> str:
        """Submit a job that can only run on one host."""
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        spec = {"name": host, "image": IMAGE, "run": "true", "workdir": "work", "resources": {"gpu": f"{host}:1"}}
        file = self.folder / f"{host}.yaml"
        file.write_text(yaml.safe_dump({**spec, **fields}))
        return submit(self.store, load_spec(file), self.folder, at=time.time()).id

    def control(self) -> subprocess.Popen[bytes]:
        with (self.folder / "controller.log").open("ab") as log:
            command = [str(BIN / "rung"), "controller"]
            self._controllers.append(subprocess.Popen(command, env=self.env, stdout=log, stderr=log))
        # Where it takes all that a host sends, it fails and not the machine.
        resource.prlimit(self._controllers[-1].pid, resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        return self._controllers[-1]

    def job(self, job_id: str) -> Job:
        return self.store.job(job_id)

    def wait(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        try:
            return pace.until(condition, seconds, every=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.shown()}") from None

    def because(self, job_id: str) -> list[str]:
        """Return everything that the history and the state of a job say in words."""
        told = [str(event.data.get("because") or event.data.get("reason") or "") for event in self.store.events(job_id)]
        return [*told, self.job(job_id).reason]

    def unexpected(self) -> list[str]:
        """Return the errors that are not ours."""
        events = [event for event in self.store.events() if event.kind == EventKind.UNEXPECTED_ERROR]
        return [f"{event.job_id}: {event.data.get('because')}" for event in events]

    def log(self) -> str:
        file = self.folder / "controller.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def shown(self) -> str:
        jobs = [f"{job.id} {job.state} {job.reason[:200]}" for job in self.store.jobs()]
        return "\n".join([*jobs, self.log()[-3000:]])

    def tree(self) -> dict[str, str]:
        """Return all files of the user beside RUNG_HOME, and the folders in RUNG_HOME, with what is in them."""
        found = {}
        for path in sorted(self.user_home.rglob("*")):
            if not path.is_relative_to(self.rung_home):
                found[str(path.relative_to(self.user_home))] = path.read_text("latin-1") if path.is_file() else ""
        return found


def peak_memory(process: subprocess.Popen[bytes]) -> int:
    """Return the most memory that a process ever had, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10  # type: ignore[index]


def mutations(value: Any) -> list[Any]:
    """Return a value with each of its parts replaced by each kind of wrong value, one at a time."""
    wrong = [None, True, -(2**63), 1e308, "", "../../x\n\x1b[31m\u202e" * 30, [[]], {"": None}]
    found = [each for each in wrong if each != value]
    if isinstance(value, dict):
        found += [{**value, key: each} for key, inner in value.items() for each in mutations(inner)]
        found += [{name: inner for name, inner in value.items() if name != key} for key in value]
    if isinstance(value, list):
        found += [[*value[:at], each, *value[at + 1 :]] for at, inner in enumerate(value) for each in mutations(inner)]
    return [json.loads(text) for text in dict.fromkeys(json.dumps(each) for each in found)]


def main(place: str, name: str, lines: str) -> None:
    """Be an honest host until the input ends."""
    host = HostileHost(Path(place), name, gpu=name.upper(), engine=HostileEngine(int(lines)))
    sys.stdout.write(json.dumps([host.port, host.known_line]) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    host.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
