"""A host: a machine with GPUs that jobs can be sent to, as the list of hosts describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rung.jobs.model.engine import DOCKER, Ask, EngineKind, PlacedBy
from rung.jobs.site.settings import Site, Start

ENGINE_SOCKET = "/var/run/docker.sock"
# What a way to start jobs at a site cannot do.
LACKS: Mapping[Start, frozenset[Ask]] = {
    Start.PLAIN: frozenset({Ask.VOLUMES, Ask.NO_NETWORK}),
    Start.APPTAINER: frozenset({Ask.NO_NETWORK}),
    Start.PYXIS: frozenset({Ask.NO_NETWORK}),
    Start.PODMAN: frozenset(),
}


@dataclass(frozen=True)
class Host:
    """One entry of the list of hosts. None: not given there, so `~/.ssh/config` or the usual default decides."""

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    key: str | None = None
    # Another host's name, or [user@]address[:port]; several with commas, nearest first.
    jump: str | None = None
    known_hosts: str | None = None
    engine_socket: str = ENGINE_SOCKET
    engine: EngineKind = DOCKER
    # Where given, every volume must lie in one of these folders.
    volume_roots: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    # The registries for which this host gets the login of the controller's user.
    registries: tuple[str, ...] = ()
    # Where the host is the login node of a site with a queue of its own.
    site: Site | None = None
    # It is this machine, so no connection is needed.
    is_here: bool = False
    # Our folder on a file system that it shares with other hosts, and the names of those: they have the same folder.
    shared: str = ""
    shares_with: tuple[str, ...] = ()
    # Where those reach it, if that is not `address`.
    address_for_hosts: str | None = None

    @property
    def can_do(self) -> frozenset[Ask]:
        """What a job may ask for here: what the engine can do, less what this host or site cannot."""
        if self.site is not None:
            return self.engine.can_do - LACKS[self.site.start]
        alone = self.engine.placed_by is PlacedBy.RUNG and not self.shares_with
        return self.engine.can_do - {Ask.NODES} if alone else self.engine.can_do

    @property
    def address_for_ranks(self) -> str:
        """Where the other hosts reach this one."""
        return self.address_for_hosts or self.address

    def takes(self, *, image: bool) -> bool:
        """Tell whether jobs with an image run here, or jobs without one."""
        at_site = self.site is None or self.site.start.contains == image
        return at_site and self.engine.takes(image=image)

    def should_have(self, gpu_type: str) -> bool:
        """Return whether the list of hosts has it in the group of this GPU type; the driver's answer overrides it."""
        return gpu_type.lower() in self.groups


def with_same_folder(hosts: Sequence[Host], name: str) -> tuple[str, ...]:
    """Return a host, and after it those of the list that have its folder with the files of jobs, too."""
    return (name, *next((host.shares_with for host in hosts if host.name == name), ()))
