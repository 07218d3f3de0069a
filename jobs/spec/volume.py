"""Owns what a volume is: a folder of the host that a container may use, written `host:container[:ro]`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

# Whoever has one of these of the host, or a folder above, has the host.
HOST_OWN = ("/proc", "/sys", "/dev", "/etc", "/boot", "/run", "/var/run", "/var/lib/docker", "/var/lib/containerd")
# What a container needs for itself, and what Rung puts there.
CONTAINER_OWN = ("/proc", "/sys", "/dev", "/etc", "/tmp", "/rung", "/usr", "/bin", "/sbin", "/lib", "/lib64")  # noqa: S108
MODES = {"": False, "rw": False, "ro": True}


@dataclass(frozen=True)
class Volume:
    """A folder of the host, and where the container finds it."""

    host: str
    container: str
    read_only: bool = False

    @property
    def text(self) -> str:
        return f"{self.host}:{self.container}{':ro' if self.read_only else ''}"


def parse_volume(text: str) -> Volume:
    """Return the volume that a text asks for, or raise a ValueError that says what is wrong with it."""
    host, _, rest = text.partition(":")
    container, _, mode = rest.partition(":")
    if mode not in MODES or not container:
        raise ValueError("write it as host:container or host:container:ro")
    for path in (host, container):
        if not path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise ValueError(f"{path or 'nothing'}: give a whole path that begins with / and has no ..")
    volume = Volume(_plain(host), _plain(container), MODES[mode])
    if any(_overlap(volume.host, own) for own in HOST_OWN):
        raise ValueError(f"{volume.host} belongs to the host itself; give a folder of yours")
    if volume.container == "/" or any(_inside(volume.container, own) for own in CONTAINER_OWN):
        raise ValueError(f"{volume.container} belongs to the container itself; choose another place such as /data")
    return volume


def host_path(path: str, volumes: tuple[Volume, ...]) -> tuple[str, Volume] | None:
    """Return where a path of the container lies on the host and through which volume; None when in none."""
    inside = [volume for volume in volumes if _inside(path, volume.container)]
    if not inside:
        return None
    volume = max(inside, key=lambda each: len(each.container))
    rest = PurePosixPath(path).relative_to(volume.container)
    return str(PurePosixPath(volume.host) / rest), volume


def _plain(path: str) -> str:
    return "/" + str(PurePosixPath(path)).lstrip("/")


def _inside(path: str, folder: str) -> bool:
    return PurePosixPath(folder) in (PurePosixPath(path), *PurePosixPath(path).parents)


def _overlap(path: str, own: str) -> bool:
    """Tell whether a path is something of the host's own, inside it, or above it."""
    return _inside(path, own) or _inside(own, path)
