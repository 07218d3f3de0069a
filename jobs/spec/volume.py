"""Volumes: folders of the host that a container may use, written `host:container[:ro]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

# A container that can read or write one of these of the host, or a folder above, may control the host.
HOST_PATHS = (
    *("/proc", "/sys", "/dev", "/etc", "/boot", "/root", "/run", "/var/run", "/var/lib/docker", "/var/lib/containerd"),
)
# The folder with the homes of people, on every system that `make provision` knows.
HOMES = "/home"
# What a container itself needs, and what Rung puts there.
CONTAINER_PATHS = ("/proc", "/sys", "/dev", "/etc", "/tmp", "/rung", "/usr", "/bin", "/sbin", "/lib", "/lib64")  # noqa: S108
MODES = {"": False, "rw": False, "ro": True}


@dataclass(frozen=True)
class Volume:
    """A folder of the host, and its path in the container."""

    host: str
    container: str
    read_only: bool = False

    @property
    def text(self) -> str:
        return f"{self.host}:{self.container}{':ro' if self.read_only else ''}"


def parse_volume(text: str) -> Volume:
    """Return the volume in a text, or raise a ValueError with what is wrong. `why_refused` says what may be mounted."""
    host, _, rest = text.partition(":")
    container, _, mode = rest.partition(":")
    if mode not in MODES or not container:
        raise ValueError("write it as host:container or host:container:ro")
    for path in (host, container):
        if not path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise ValueError(f"{path or 'nothing'}: give a whole path that begins with / and has no ..")
    volume = Volume(_normalized(host), _normalized(container), MODES[mode])
    if volume.container == "/" or any(inside(volume.container, system_path) for system_path in CONTAINER_PATHS):
        raise ValueError(f"{volume.container} belongs to the container itself; choose another place such as /data")
    return volume


def why_refused(path: str, homes: Sequence[str] = (), sockets: Sequence[str] = ()) -> str | None:
    """Return why no container may use this path of a host; None if it may.

    `homes` are the account's home and what it resolves to, `sockets` the same of the engine's socket; none where the
    host is not known yet. Links are not followed here: the path must be resolved already, or be checked again.
    """
    if any(_overlap(path, system_path) for system_path in HOST_PATHS):
        return "belongs to the host itself"
    if any(_reaches_socket(path, socket, homes) for socket in sockets):
        return "holds the socket of the engine, which controls the host"
    if inside(HOMES, path) or any(inside(home, path) for home in homes):
        return "holds the account's own files, such as its SSH keys"
    # On a host that is not known yet, every folder of HOMES may be the account's.
    own = [_first_inside(path, home) for home in homes] + [_first_inside(path, _folder_of_homes(path))]
    if any(name == "bin" or (name or "").startswith(".") for name in own):
        return "is the account's own: no job may use the hidden files or the bin of a home"
    return None


def host_path(path: str, volumes: tuple[Volume, ...]) -> tuple[str, Volume] | None:
    """Return the host's path for a path of the container, and its volume; None if no volume holds it."""
    found = [volume for volume in volumes if inside(path, volume.container)]
    if not found:
        return None
    volume = max(found, key=lambda each: len(each.container))
    rest = PurePosixPath(path).relative_to(volume.container)
    return str(PurePosixPath(volume.host) / rest), volume


def inside(path: str, folder: str) -> bool:
    """Tell whether a path is a folder or lies in it."""
    return PurePosixPath(folder) in (PurePosixPath(path), *PurePosixPath(path).parents)


def _normalized(path: str) -> str:
    return "/" + str(PurePosixPath(path)).lstrip("/")


def _overlap(path: str, system_path: str) -> bool:
    """Return whether a path is a system path, or inside or above one."""
    return inside(path, system_path) or inside(system_path, path)


def _reaches_socket(path: str, socket: str, homes: Sequence[str]) -> bool:
    """Tell whether a path holds a socket or lies beside it; beside one in a home lie folders of people."""
    folder = str(PurePosixPath(socket).parent)
    beside = inside(path, folder) and not any(inside(home, folder) for home in homes)
    return _overlap(path, socket) or (beside and folder != "/")


def _folder_of_homes(path: str) -> str:
    """Return the home that a path below /home lies in."""
    return str(PurePosixPath(*PurePosixPath(path).parts[:3])) if inside(path, HOMES) else HOMES


def _first_inside(path: str, home: str) -> str | None:
    """Return the name in a home that a path is or lies in."""
    parts = PurePosixPath(path).parts[len(PurePosixPath(home).parts) :]
    return parts[0] if inside(path, home) and parts else None
