"""Volumes: folders of the host that a container may use, written `host:container[:ro]`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

# A container that can write to one of these of the host, or to a folder above, controls the host.
HOST_PATHS = ("/proc", "/sys", "/dev", "/etc", "/boot", "/run", "/var/run", "/var/lib/docker", "/var/lib/containerd")
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
    """Return the volume in a text, or raise a ValueError with what is wrong."""
    host, _, rest = text.partition(":")
    container, _, mode = rest.partition(":")
    if mode not in MODES or not container:
        raise ValueError("write it as host:container or host:container:ro")
    for path in (host, container):
        if not path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise ValueError(f"{path or 'nothing'}: give a whole path that begins with / and has no ..")
    volume = Volume(_normalized(host), _normalized(container), MODES[mode])
    if any(_overlap(volume.host, system_path) for system_path in HOST_PATHS):
        raise ValueError(f"{volume.host} belongs to the host itself; give a folder of yours")
    if volume.container == "/" or any(_inside(volume.container, system_path) for system_path in CONTAINER_PATHS):
        raise ValueError(f"{volume.container} belongs to the container itself; choose another place such as /data")
    return volume


def host_path(path: str, volumes: tuple[Volume, ...]) -> tuple[str, Volume] | None:
    """Return the host's path for a path of the container, and its volume; None if no volume holds it."""
    inside = [volume for volume in volumes if _inside(path, volume.container)]
    if not inside:
        return None
    volume = max(inside, key=lambda each: len(each.container))
    rest = PurePosixPath(path).relative_to(volume.container)
    return str(PurePosixPath(volume.host) / rest), volume


def _normalized(path: str) -> str:
    return "/" + str(PurePosixPath(path)).lstrip("/")


def _inside(path: str, folder: str) -> bool:
    return PurePosixPath(folder) in (PurePosixPath(path), *PurePosixPath(path).parents)


def _overlap(path: str, system_path: str) -> bool:
    """Return whether a path is a system path, or inside or above one."""
    return _inside(path, system_path) or _inside(system_path, path)
