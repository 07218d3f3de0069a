"""Brings a whole fleet up and down: the engine, the registry, the hosts, and the files that describe them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.fleet.cards import host_names
from tests.fleet.engine import Engine
from tests.fleet.folders import discard, share_images, share_registry
from tests.fleet.host import ACCOUNT, Host, Machine
from tests.fleet.images import PORT, start_registry
from tests.fleet.parts import cache, held, locked, prepare
from tests.fleet.patience import FleetError, run, wait_for

# The numbers of fleets for tests start here; smaller ones are for people.
FIRST_CLAIMED, LAST_CLAIMED = 200, 249
MOST_HOSTS, MOST_GPUS = 32, 16


@dataclass
class Fleet:
    """Hosts on their own network; every fleet on this machine has another number."""

    number: int
    hosts: dict[str, Host] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.number <= 254:
            raise FleetError(f"a fleet's number is one of 1 to 254, not {self.number}")

    @property
    def folder(self) -> Path:
        return cache() / "run" / str(self.number)

    @property
    def engine(self) -> Engine:
        return Engine(self.folder / "engine", self.number)

    @property
    def registry(self) -> Machine:
        return Machine("registry", self.engine.address(2), self.engine)

    @property
    def inventory(self) -> Path:
        """The file to name in RUNG_HOSTS."""
        return self.folder / "hosts.yml"

    @property
    def shared(self) -> Path:
        """The folder here that all hosts have as SHARED: what lies there outlives their disks and their power."""
        return self.folder / "shared"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def key(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def images(self) -> dict[str, str]:
        """The images by name, each pinned by its digest."""
        found: dict[str, str] = json.loads((self.folder / "images.json").read_text())
        return found

    @classmethod
    @contextmanager
    def claimed(cls) -> Iterator[Fleet]:
        """Yield a fleet under a number that nobody has, for as long as this process lives; then take it down.

        The claim is a lock: what a killed process leaves is taken over, and cleared away, by the next to come.
        """
        (cache() / "run").mkdir(parents=True, exist_ok=True)
        for number in range(FIRST_CLAIMED, LAST_CLAIMED + 1):
            fleet = cls(number)
            if fleet.engine.interface.exists() and not fleet.engine.made.exists():
                continue  # a fleet with another cache
            with fleet.folder.with_suffix(".claim").open("a") as file, held(file) as ours:
                if ours:
                    try:
                        yield fleet
                    finally:
                        fleet.down()
                    return
        raise FleetError(f"the numbers from {FIRST_CLAIMED} to {LAST_CLAIMED} are all taken by other fleets")

    def up(self, hosts: int = 3, gpus: int = 1) -> Fleet:
        """Bring the fleet up; what is left of an earlier one with this number goes first."""
        if not 1 <= hosts <= MOST_HOSTS or not 0 <= gpus <= MOST_GPUS:
            raise FleetError(f"a fleet has 1 to {MOST_HOSTS} hosts with 0 to {MOST_GPUS} GPUs, not {hosts} with {gpus}")
        parts = prepare()
        with locked(cache() / "run" / f"{self.number}.lock"):
            self.clear()
            self.shared.mkdir(parents=True)
            with locked(cache() / "lock"):
                share_images(parts.engine / "data", self.engine.data)
                share_registry(parts.images / "registry", self.folder / "registry")
                shutil.copy(parts.images / "images.json", self.folder)
                run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fleet", "-f", self.key)
                self.hosts = {name: self.host(place, name, gpus) for place, name in enumerate(self.names(hosts))}
                self.at_once(lambda host: self.furnish(host, parts.images / "data"))
            self.engine.start()
            start_registry(self.engine, self.folder / "registry")
            self.at_once(lambda host: host.boot())
            wait_for(lambda: self.registry.serves(PORT), "the registry")
            self.write_files()
        return self

    def names(self, many: int) -> list[str]:
        return host_names(many)

    def host(self, place: int, name: str, gpus: int) -> Host:
        folder = self.folder / "hosts" / name
        return Host(name, self.engine.address(11 + place), self.engine, folder, gpus, self.shared)

    def furnish(self, host: Host, images: Path) -> None:
        """Fill a host's folders; its key is the same in every fleet of this machine."""
        key = cache() / "host_keys" / host.name
        if not key.exists():
            key.parent.mkdir(exist_ok=True)
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host.name, "-f", key)
        host.prepare(images, self.key.with_suffix(".pub").read_text(), key)

    def at_once(self, act: Callable[[Host], None]) -> None:
        """Do something to all hosts at the same time."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(act, self.hosts.values()))

    def restore(self) -> None:
        """Undo everything that was done to the hosts and the registry."""
        machines = [self.registry, *self.hosts.values()]
        # One question for all of them: each program that is started here takes time after every test.
        states = json.loads(self.engine.docker("inspect", *(machine.name for machine in machines)))
        for machine, state in zip(machines, states, strict=True):
            if not is_well(state):
                machine.revive()
        self.at_once(Host.restore)

    def down(self) -> None:
        """Take everything down: hosts, registry, network, engine, disks and folders."""
        with locked(cache() / "run" / f"{self.number}.lock"):
            self.clear()

    def clear(self) -> None:
        if self.folder.exists():
            self.engine.stop()
            discard(self.folder)
        self.hosts = {}

    # Files for Rung, tests and people

    def write_files(self) -> None:
        """Write the inventory, the known hosts and the ssh configuration."""
        known = [
            f"{host.address} {(cache() / 'host_keys' / f'{host.name}.pub').read_text()}" for host in self.hosts.values()
        ]
        self.known_hosts.write_text("".join(known))
        groups: dict[str, Any] = {}
        for host in self.hosts.values():
            group = groups.setdefault(host.card.group, {"hosts": {}})
            group["hosts"][host.name] = {"ansible_host": host.address}
        common = {
            "ansible_user": ACCOUNT,
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.known_hosts}",
        }
        self.inventory.write_text(yaml.safe_dump({"all": {"vars": common, "children": groups}}, sort_keys=False))
        options = {"User": ACCOUNT, "IdentityFile": self.key, "UserKnownHostsFile": self.known_hosts}
        lines = "".join(f"  {name} {value}\n" for name, value in {**options, "IdentitiesOnly": "yes"}.items())
        self.ssh_config.write_text(
            "".join(f"Host {h.name}\n  HostName {h.address}\n{lines}" for h in self.hosts.values())
        )

    @classmethod
    def found(cls, number: int) -> Fleet:
        """Return the fleet that is up under a number."""
        fleet = cls(number)
        if not fleet.inventory.exists():
            raise FleetError(f"no fleet with the number {number} is up: make fleet")
        fleet.hosts = {
            name: fleet.host(place, name, fleet.gpus_of(name))
            for place, name in enumerate(host_names(len(list((fleet.folder / "hosts").iterdir()))))
        }
        return fleet

    def gpus_of(self, name: str) -> int:
        return len((self.folder / "hosts" / name / "etc" / "gpus").read_text().splitlines()) - 1


def is_well(state: dict[str, Any]) -> bool:
    """Return whether a machine has power and link and is not frozen, from its state."""
    running = state["State"]["Running"] and not state["State"]["Paused"]
    return bool(running) and "fleet" in state["NetworkSettings"]["Networks"]
