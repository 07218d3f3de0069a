"""Makes the engine of each host: of the kind that its host has.

The modules that remote hosts need are imported only when a job goes to one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from rung.jobs.job import Attempt
from rung.jobs.model.engine import DOCKER, SLURM, EngineKind
from rung.jobs.model.errors import HostUnreachable
from rung.jobs.model.host import Host
from rung.runner.engines.process import ProcessEngine
from rung.runner.hosts.host_list import find_hosts
from rung.runner.hosts.local_remote import LocalRemote
from rung.runner.hosts.survey import Report, survey
from rung.runner.hosts.this_machine import survey_here
from rung.runner.seams.engine import Engine, HostEngine, LocalEngine, PartEngine
from rung.runner.seams.remote import Remote


def _docker(host: Host, remote: Remote, store_id: str) -> HostEngine:
    from rung.runner.engines.docker.engine import DockerEngine
    from rung.runner.hosts.registry_login import RegistryLogins

    logins = RegistryLogins(host.registries)
    return DockerEngine(remote, store_id, host.engine_socket, logins, host.volume_roots, host.shared)


def _slurm(host: Host, remote: Remote, store_id: str) -> HostEngine:
    from rung.runner.engines.slurm.engine import SlurmEngine

    assert host.site is not None, "a host with this engine has the settings of its site"
    return SlurmEngine(remote, store_id, host.site)


# The engines of hosts: each is made for a host, its connection and the id of the store.
MAKERS: Mapping[EngineKind, Callable[[Host, Remote, str], HostEngine]] = {DOCKER: _docker, SLURM: _slurm}


class Engines(Protocol):
    """The engines: `local` that of this machine, the others by their host."""

    local: LocalEngine

    @property
    def hosts(self) -> Sequence[Host]: ...

    def on(self, host: str) -> HostEngine: ...

    def of(self, attempt: Attempt) -> Engine: ...

    def remote(self, host: str) -> Remote: ...

    def survey(self, host: Host) -> Report:
        """Return the state of a host; takes seconds, and may be called from any thread."""

    def survey_here(self) -> Report:
        """Return the GPUs of this machine, likewise."""

    def job_ended(self, job_id: str) -> None:
        """Drop what is kept about a job that has ended."""

    def close(self) -> None: ...


class RealEngines:
    """The process engine of this machine, and those of the hosts, each made at first use."""

    def __init__(self, environ: Mapping[str, str], home: Path, store_id: str, *, only: str | None = None) -> None:
        self.local: LocalEngine = ProcessEngine()
        self._environ, self._home, self._store_id, self._only = environ, home, store_id, only
        self._hosts: tuple[Host, ...] | None = None
        self._remotes: Any = None
        self._engines: dict[str, HostEngine] = {}
        # Of the jobs on several hosts, by the number of their last attempt.
        self._groups: dict[str, tuple[int, Engine]] = {}
        self._lock = threading.Lock()

    @property
    def hosts(self) -> Sequence[Host]:
        """Return the list of hosts; it is read once."""
        if self._hosts is None:
            self._hosts = tuple(host for host in find_hosts(self._environ) if self._only in (None, host.name))
        return self._hosts

    def remote(self, host: str) -> Remote:
        if self._host(host).is_here:
            return LocalRemote(host, self._environ)
        with self._lock:
            if self._remotes is None:
                from rung.runner.ssh.remote import Remotes

                # All hosts, because any of them may be the jump host of another.
                self._remotes = Remotes(find_hosts(self._environ), self._home, self._environ)
        remote: Remote = self._remotes.remote(self._host(host).name)
        return remote

    def survey(self, host: Host) -> Report:
        return survey(host, self.remote(host.name), time.time)

    def survey_here(self) -> Report:
        return survey_here(self._environ)

    def on(self, host: str) -> HostEngine:
        if host not in self._engines:
            listed = self._host(host)
            self._engines[host] = MAKERS[listed.engine](listed, self.remote(host), self._store_id)
        return self._engines[host]

    def of(self, attempt: Attempt) -> Engine:
        if attempt.members:
            return self._group(attempt)
        return self.on(attempt.host) if attempt.is_remote else self.local

    def _group(self, attempt: Attempt) -> Engine:
        """Return the engine of an attempt on several hosts; it lasts as long as the attempt."""
        known = self._groups.get(attempt.job_id)
        if known is not None and known[0] == attempt.number:
            return known[1]
        from rung.runner.engines.group.engine import GroupEngine
        from rung.runner.engines.group.parts import Part

        parts = [
            Part(
                each.host, cast(PartEngine, self.on(each.host)), tuple(gpu.uuid or str(gpu.index) for gpu in each.gpus)
            )
            for each in attempt.places
        ]
        engine = GroupEngine(parts, self._host(attempt.host).address_for_ranks, self._store_id)
        self._groups[attempt.job_id] = attempt.number, engine
        return engine

    def job_ended(self, job_id: str) -> None:
        self._groups.pop(job_id, None)

    def _host(self, name: str) -> Host:
        found = next((host for host in self.hosts if host.name == name), None)
        if found is None:
            raise HostUnreachable(f"{name} is not in the list of hosts any more; put it back, or cancel the job")
        return found

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()
        if self._remotes is not None:
            self._remotes.close()
