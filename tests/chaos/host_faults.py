"""The faults of hosts, beside those of the controller and the jobs: each host has at most one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from tests.chaos.docker_jobs import DockerJobs
from tests.chaos.evidence import (
    CONTAINER_KILLED,
    CONTAINER_REMOVED,
    CUT,
    ENGINE_KILLED,
    FROZEN,
    HOST_DISK_FULL,
    LOGIN_KILLED,
    POWER_LOST,
)
from tests.chaos.faults import KINDS, Injector, Kinds
from tests.fleet.fleet import Fleet
from tests.fleet.host import Host, Machine

# As slow as a bad line of a phone. A faster one is not noticed by jobs that are this small.
SLOW = ("tbf", "rate", "64kbit", "burst", "16kbit", "latency", "400ms")
# Seconds for which the link of a flapping host is away and there, one after the other.
FLAPS = ((0.3, 0.5), (1.0, 0.2), (0.2, 1.0), (2.0, 0.1))
Act = Callable[[Host], object]


def flap(host: Host) -> None:
    for away, there in FLAPS:
        host.cut()
        time.sleep(away)
        host.reconnect()
        time.sleep(there)


def shut_down(host: Host) -> None:
    host.engine.docker("stop", "--time", 60, host.name)


def answer_nothing(action: str, host: Host) -> None:
    """Let what comes in arrive, and let nothing out; or end that."""
    host.run("iptables", "-w", action, "OUTPUT", "-s", host.address, "-j", "DROP")


def shape_link(action: str, host: Host) -> None:
    """Make the link slow, or end that. A link that was cut has another name afterwards."""
    dev = host.run("ip", "-oneline", "-4", "address", "show", "to", host.address).split()[1]
    host.run("tc", "qdisc", action, "dev", dev, "root", *SLOW)


def start_engine(host: Host, *flags: str) -> None:
    host.run("engine", "start", *flags)


def nothing(host: Host) -> None:
    """Do nothing: the fault is over when it has begun."""


@dataclass(frozen=True)
class HostFault:
    """What the evidence calls it, how it begins, and how it ends."""

    kind: str
    begin: Act
    end: Act


HOST_FAULTS = {
    "host frozen": HostFault(FROZEN, Machine.freeze, Machine.thaw),
    "host without power": HostFault(POWER_LOST, Machine.power_off, Machine.power_on),
    "host restarted": HostFault(POWER_LOST, shut_down, Machine.power_on),
    "host disk full": HostFault(HOST_DISK_FULL, Host.fill_disk, Host.free_disk),
    "link cut": HostFault(CUT, Machine.cut, Machine.reconnect),
    "link flapping": HostFault(CUT, flap, nothing),
    "link one-way": HostFault(CUT, partial(answer_nothing, "-I"), partial(answer_nothing, "-D")),
    "link slow": HostFault(CUT, partial(shape_link, "add"), partial(shape_link, "del")),
    "engine killed": HostFault(ENGINE_KILLED, Host.kill_engine, start_engine),
    "engine killed, containers stay": HostFault(
        ENGINE_KILLED, Host.kill_engine, lambda host: start_engine(host, "--live-restore")
    ),
    "sshd killed": HostFault(
        LOGIN_KILLED,
        lambda host: host.run("pkill", "-KILL", "-x", "sshd", check=False),
        lambda host: host.run("/usr/sbin/sshd"),
    ),
}


@dataclass
class HostInjector(Injector):
    """Injects the faults of hosts, too."""

    longest_wait: ClassVar[float] = 8.0
    longest_pause: ClassVar[float] = 2.5

    fleet: Fleet = field(kw_only=True)
    # The hosts that have a fault now.
    _busy: set[str] = field(default_factory=set)

    def kinds(self) -> Kinds:
        return HOST_KINDS

    @property
    def runs(self) -> DockerJobs:
        assert isinstance(self.lab.runs, DockerJobs)
        return self.lab.runs

    def disturb_host(self, what: str) -> bool:
        """Let one host have a fault for a while."""
        free = [host for name, host in self.fleet.hosts.items() if name not in self._busy and host.serves(22)]
        if not free:
            return False
        host, fault, begun = self.chance.choice(free), HOST_FAULTS[what], time.time()

        def end() -> None:
            fault.end(host)
            self.runs.frozen.discard(host.name)
            self._busy.discard(host.name)
            self.lab.journal.hosts.append((host.name, fault.kind, begun, time.time()))
            self.lab.note(f"{what} is over on {host.name}")

        self._busy.add(host.name)
        if fault.kind == FROZEN:
            self.runs.frozen.add(host.name)
        self.lab.note(f"{what} on {host.name}")
        fault.begin(host)
        self._last(self.chance.choice((self.chance.uniform(0.3, 3), self.chance.uniform(5, 20))), end)
        return True

    def kill_container(self) -> bool:
        return self._kill(CONTAINER_KILLED, self.runs.kill_wrapper)

    def remove_container(self) -> bool:
        return self._kill(CONTAINER_REMOVED, self.runs.remove_container)

    def end_all(self) -> None:
        super().end_all()
        for host in self.fleet.hosts.values():
            host.wait_until_ready()


def _host_kind(what: str) -> Callable[[Any], bool]:
    return lambda injector: bool(injector.disturb_host(what))


HOST_KINDS: Kinds = {
    **{kind: each for kind, each in KINDS.items() if kind != "wrapper killed"},
    "container killed": (4, HostInjector.kill_container),
    "container removed": (4, HostInjector.remove_container),
    **{what: (2, _host_kind(what)) for what in HOST_FAULTS},
}
