"""Tells where the files of jobs are on a host, and what an attempt there needs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import IN_FILES, IN_JOB, HostPaths
from rung.jobs.spec.volume import host_path
from rung.runner.seams.engine import Container, Request


@dataclass(frozen=True)
class RemoteUser:
    """Our account on a host. The container runs as the same user, so that we own the files it writes."""

    home: str
    # Text where the host is not known yet.
    uid: int | str
    gid: int | str
    # In bytes; 0: not known.
    host_memory: int | str = 0
    # The kernel's name of the architecture, and the folders of the host's own programs.
    machine: str = ""
    program_folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostLayout:
    """Where the files of attempts are on a host."""

    user: RemoteUser
    store_id: str
    # The shipped tree of the code that runs inside.
    inside: str
    # Where the list of hosts says so, instead of the usual folder in the home.
    folder: str = ""

    @property
    def paths(self) -> HostPaths:
        return HostPaths(self.user.home, self.store_id, self.folder)


def path_in_files(request: Request) -> str:
    """Return the path of the attempt's checkpoint folder in a container of `files_config`. Pure."""
    wanted, folder = wanted_of(request), PurePosixPath(request.checkpoint_dir)
    if folder.is_relative_to(IN_FILES) or host_path(str(folder), wanted.volumes) is not None:
        return str(folder)
    if not folder.is_relative_to(IN_JOB):
        raise EngineError(f"{folder} is in no volume: it would be lost with the container")
    return str(PurePosixPath(IN_FILES, "stays", str(wanted.residence)) / folder.relative_to(IN_JOB))


def wanted_of(request: Request) -> Container:
    if request.container is None:
        raise EngineError(f"{request.job_id} runs on this machine, and not on a host")
    return request.container
