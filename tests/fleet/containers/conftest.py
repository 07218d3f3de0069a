"""Runs attempts on a real host of the fleet, for the tests of the Docker engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.paths import IN_JOB, IN_WORK, HomePaths
from rung.runner.engines.docker.engine import DockerEngine
from rung.runner.files.log_file import LogFile
from rung.runner.hosts.host_list import find_hosts
from rung.runner.seams.engine import Container, Observation, Presence, Request
from rung.runner.ssh.remote import Remotes, SshRemote
from tests import pace
from tests.fleet.fleet import Fleet
from tests.fleet.host import Host

collect_ignore_glob = ["test_*.py"] if os.environ.get("RUNG_TEST_FLEET") == "off" else []

# The longest wait in seconds; on a slow machine tests/pace.py makes it longer.
PATIENCE = 120.0
STORE = "0123456789ab"


class Attempts:
    """Makes attempts of one job on one host."""

    def __init__(self, fleet: Fleet, remotes: Remotes, folder: Path) -> None:
        self.fleet, self.remotes, self.folder = fleet, remotes, folder
        self.host: Host = fleet.hosts["turing"]
        self.home = HomePaths(folder / "home")
        self.source = folder / "work"
        self.source.mkdir()
        self.engines: list[DockerEngine] = []
        self.engine = self.new_engine()
        self.made = 0

    @property
    def remote(self) -> SshRemote:
        return self.remotes.remote(self.host.name)

    def new_engine(self, store: str = STORE) -> DockerEngine:
        """Return a new engine, as a new controller has one."""
        self.engine = DockerEngine(self.remote, store)
        self.engines.append(self.engine)
        return self.engine

    def request(self, *argv: str, image: str = "tiny", env: Mapping[str, str] | None = None, **more: Any) -> Request:
        self.made += 1
        names = {name: more.pop(name) for name in ("gpus", "volumes", "shm", "pids", "network") if name in more}
        return Request(
            job_id="a-1",
            attempt=self.made,
            argv=argv,
            cwd=Path(IN_WORK),
            env={"HOME": "/tmp", "RUNG_CHECKPOINT_DIR": f"{IN_JOB}/checkpoints", **(env or {})},
            paths=self.home.attempt("a-1", self.made),
            checkpoint_dir=Path(IN_JOB) / "checkpoints",
            container=Container(self.fleet.images.get(image, image), **names),
            source=self.source,
            **more,
        )

    def start(self, *argv: str, secrets: Mapping[str, str] | None = None, **more: Any) -> Request:
        request = self.request(*argv, secrets=tuple(secrets or ()), **more)
        self.engine.start(request, secrets or {})
        return request

    def sh(self, script: str, **more: Any) -> Request:
        return self.start("sh", "-c", script, **more)

    def wait(self, condition: Callable[[], Any], what: str = "") -> Any:
        return pace.until(condition, PATIENCE, what, every=0.02)

    def becomes(self, request: Request, presence: Presence) -> Observation:
        self.wait(lambda: self.engine.observe(request.paths).presence is presence, f"{presence}")
        return self.engine.observe(request.paths)

    def end(self, request: Request) -> Observation:
        over = (Presence.ENDED, Presence.LOST)
        self.wait(lambda: self.engine.observe(request.paths).presence in over, "its end")
        return self.engine.observe(request.paths)

    def log(self, request: Request) -> str:
        return LogFile(request.paths.log).read(64 << 20).decode("utf-8", "surrogateescape")

    def wait_for_log(self, request: Request, text: str) -> None:
        self.wait(lambda: text in self.log(request), text)

    def name(self, request: Request) -> str:
        return f"rung-{STORE}-a-1-{request.attempt}"

    def containers(self) -> list[str]:
        """Return the names of all containers on the host."""
        return self.host.docker("ps", "--all", "--format", "{{.Names}}").split()

    def checkpoints(self, job_id: str = "a-1") -> Path:
        """Return the folder with the checkpoints of a job on the host, as seen from here."""
        return self.host.work / f".rung/{STORE}/jobs/{job_id}/stays/1/checkpoints"

    def again(self, request: Request, **changes: Any) -> Request:
        """Return the same request as the next attempt."""
        self.made += 1
        return replace(request, attempt=self.made, paths=self.home.attempt("a-1", self.made), **changes)


@pytest.fixture
def attempts(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempts]:
    for name in ("SSH_AUTH_SOCK", "RUNG_KNOWN_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "client").mkdir()
    remotes = Remotes(find_hosts({"RUNG_HOSTS": str(fleet.inventory)}), tmp_path / "client", os.environ)
    made = Attempts(fleet, remotes, tmp_path)
    yield made
    # Closed first: otherwise a host that is frozen or cut off would block the engines.
    remotes.close()
    for engine in made.engines:
        engine.close()
