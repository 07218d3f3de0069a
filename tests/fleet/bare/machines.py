"""Bare machines: sshd, Python, apt, a source of packages, and fake NVIDIA packages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.fleet.fleet import Fleet
from tests.fleet.host import CAPABILITIES, REGISTRY, Host, own_groups
from tests.fleet.images import PORT
from tests.fleet.patience import run, wait_for

IMAGE = "fleet/bare"
PACKAGES = "deb [trusted=yes] file:/srv/packages ./"


@dataclass(frozen=True)
class BareHost(Host):
    """A bare machine with an administrator's key and a small disk for home folders."""

    def prepare(self, images: Path | None, client_key: str, host_key: Path) -> None:
        super().prepare(None, client_key, host_key)
        run("chown", "root:root", self.work)
        (self.folder / "docker").mkdir()

    def boot(self) -> None:
        volumes = {"docker": "/var/lib/docker", "etc": "/etc/fleet", "work": "/home"}
        registry = self.address.rpartition(".")[0] + ".2"
        self.create(
            *(f"--cap-add={name}" for name in CAPABILITIES),
            *(f"--security-opt={name}=unconfined" for name in ("seccomp", "systempaths")),
            *("--device-cgroup-rule=a *:* rwm", *own_groups()),
            *(f"--volume={self.folder / here}:{there}" for here, there in volumes.items()),
            *("--tmpfs=/run", "--tmpfs=/tmp", f"--add-host={REGISTRY}:{registry}", IMAGE),
        )
        wait_for(lambda: self.serves(22), f"sshd on {self.name}")


@dataclass
class BareFleet(Fleet):
    """A fleet of bare machines; its inventory names a local source of packages, because they have no internet."""

    def names(self, many: int) -> list[str]:
        """Return the host with the most limits: its GPU works with the fewest drivers and images."""
        return ["pascal"][:many]

    def host(self, place: int, name: str, gpus: int) -> Host:
        return BareHost(name, self.engine.address(11 + place), self.engine, self.folder / "hosts" / name, gpus)

    def write_files(self) -> None:
        super().write_files()
        inventory = yaml.safe_load(self.inventory.read_text())
        inventory["all"]["vars"] |= {
            "docker_apt_source": PACKAGES,
            "nvidia_apt_source": PACKAGES,
            "docker_options": {"insecure-registries": [f"{REGISTRY}:{PORT}"], "storage-driver": "overlay2"},
            "images_pull": [self.images["tiny"]],
        }
        self.inventory.write_text(yaml.safe_dump(inventory, sort_keys=False))
