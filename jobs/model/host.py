"""A host: a machine with GPUs that jobs can be sent to, as the list of hosts describes it."""

from __future__ import annotations

from dataclasses import dataclass

from rung.jobs.model.engine import DOCKER, EngineKind

ENGINE_SOCKET = "/var/run/docker.sock"


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

    def should_have(self, gpu_type: str) -> bool:
        """Return whether the list of hosts has it in the group of this GPU type; the driver's answer overrides it."""
        return gpu_type.lower() in self.groups
