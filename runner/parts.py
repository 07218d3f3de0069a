"""Owns the real parts and what the loop's members share: which engine serves which attempt is chosen here, once.

What remote hosts need is loaded only when a job goes to one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from jobs.attempt import Attempt, Job
from jobs.errors import EngineError, HostUnreachable
from jobs.host import Host
from jobs.paths import HomePaths
from runner.engine import Engine, Request
from runner.errands import Errands
from runner.hostengine import HostEngine
from runner.hosts import find_hosts
from runner.launch import build_request
from runner.process import ProcessEngine
from runner.remote import Remote
from runner.store import Store
from runner.survey import Report, survey


class Engines(Protocol):
    """The engines by host. An attempt with an image runs on a host of the list, one without on this machine."""

    here: Engine

    @property
    def hosts(self) -> Sequence[Host]: ...

    def on(self, host: str) -> HostEngine: ...

    def remote(self, host: str) -> Remote: ...

    def look(self, host: Host) -> Report:
        """Return what is seen of a host; takes a while, and may be called from any thread."""

    def close(self) -> None: ...


class RealEngines:
    """The process engine here, and a Docker engine for each host, made when first asked for."""

    def __init__(self, environ: Mapping[str, str], home: Path, store_id: str, *, only: str | None = None) -> None:
        self.here: Engine = ProcessEngine()
        self._environ, self._home, self._store_id, self._only = environ, home, store_id, only
        self._hosts: tuple[Host, ...] | None = None
        self._remotes: Any = None
        self._made: dict[str, HostEngine] = {}
        self._lock = threading.Lock()

    @property
    def hosts(self) -> Sequence[Host]:
        """Return the list of hosts, as it was when first asked for."""
        if self._hosts is None:
            self._hosts = tuple(host for host in find_hosts(self._environ) if self._only in (None, host.name))
        return self._hosts

    def remote(self, host: str) -> Remote:
        with self._lock:
            if self._remotes is None:
                from runner.ssh import Remotes

                # All of them, since any may be another's jump host.
                self._remotes = Remotes(find_hosts(self._environ), self._home, self._environ)
        remote: Remote = self._remotes.remote(self._listed(host).name)
        return remote

    def look(self, host: Host) -> Report:
        return survey(host, self.remote(host.name), time.time)

    def on(self, host: str) -> HostEngine:
        if host not in self._made:
            from runner.docker import DockerEngine

            socket = self._listed(host).engine_socket
            self._made[host] = DockerEngine(self.remote(host), self._store_id, socket)
        return self._made[host]

    def _listed(self, name: str) -> Host:
        found = next((host for host in self.hosts if host.name == name), None)
        if found is None:
            raise HostUnreachable(f"{name} is not in the list of hosts any more; put it back, or cancel the job")
        return found

    def close(self) -> None:
        for engine in self._made.values():
            engine.close()
        if self._remotes is not None:
            self._remotes.close()


Then = Callable[[Job, Any], None]
Failed = Callable[[Job, EngineError], None]


@dataclass
class Parts:
    """What every member of the loop works with. The clock and the sleep are passed in."""

    store: Store
    engines: Engines
    paths: HomePaths
    environ: Mapping[str, str]
    now: Callable[[], float]
    sleep: Callable[[float], None]
    errands: Errands = field(default_factory=Errands)
    # How far an errand is, in its own words; told as the job's reason on the next turn.
    progress: dict[str, str] = field(default_factory=dict)
    # Until when a job is left alone, after something that will not be better at once.
    resting: dict[str, float] = field(default_factory=dict)

    def engine(self, attempt: Attempt) -> Engine:
        return self.engines.here if attempt.image is None else self.engines.on(attempt.host)

    def request(self, job: Job, attempt: Attempt) -> Request:
        return build_request(job, attempt, self.paths, self.store.origin(job.id), self.environ)

    def say(self, job: Job, reason: str) -> None:
        if reason != job.reason:
            with self.store.transaction():
                self.store.say(job.id, reason)

    def rest(self, key: str, seconds: float) -> None:
        self.resting[key] = self.now() + seconds

    def rests(self, key: str) -> bool:
        return self.now() < self.resting.get(key, 0.0)

    def ask(self, job: Job, attempt: Attempt, work: Callable[[], Any], then: Then, failed: Failed) -> None:
        """Ask an attempt's engine: at once on this machine, beside the loop on a host."""
        if attempt.image is not None:
            self.errands.send(job.id, attempt.host, work, (then, failed))
            return
        try:
            answer = work()
        except EngineError as error:
            failed(job, error)
        else:
            then(job, answer)
