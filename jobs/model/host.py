"""Owns what a host is: a machine with GPUs that jobs can be sent to, as the list of hosts names it."""

from __future__ import annotations

from dataclasses import dataclass

ENGINE_SOCKET = "/var/run/docker.sock"


@dataclass(frozen=True)
class Host:
    """One line of the list of hosts. None: not said there, so `~/.ssh/config` or the usual default says it."""

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    key: str | None = None
    # Another host's name, or [user@]address[:port]; several with commas, the first is nearest to us.
    jump: str | None = None
    known_hosts: str | None = None
    engine_socket: str = ENGINE_SOCKET
    groups: tuple[str, ...] = ()

    def should_have(self, gpu_type: str) -> bool:
        """Tell whether the list of hosts puts it into the group of this type; the driver has the last word."""
        return gpu_type.lower() in self.groups
