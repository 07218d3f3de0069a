"""Owns the Docker engine: an attempt as a container on a host, reached over that host's one connection.

An attempt is known by its container's name and labels. What is found under its name is adopted, never made twice.
`start` ships, pulls and creates, so it may take minutes: call it where nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jobs.gpu import Gpu
from jobs.host import ENGINE_SOCKET
from jobs.paths import AttemptPaths
from runner.engine import Capabilities, FileEntry, Observation, Request
from runner.remote import Remote

Tell = Callable[[str], None]


class DockerEngine:
    """Runs attempts in containers on one host. All of it may be called from any thread."""

    capabilities = Capabilities(limits=True, images=True, gpu_choice=True)

    def __init__(self, remote: Remote, store_id: str, socket: str = ENGINE_SOCKET) -> None:
        self.host = remote.name
        self._remote, self._store_id, self._socket = remote, store_id, socket

    def ensure_image(self, image: str, tell: Tell) -> None:
        """Have the image on the host: pulls it by its digest, telling how far it is; EngineError when it cannot be."""
        raise NotImplementedError

    def complaint(self, image: str, gpu: Gpu) -> str | None:
        """Say why the image cannot run on this GPU, or None. The image must be there. Asked once, then remembered."""
        raise NotImplementedError

    def start(self, request: Request, secrets: Mapping[str, str]) -> None:
        raise NotImplementedError

    def observe(self, paths: AttemptPaths) -> Observation:
        raise NotImplementedError

    def stop(self, paths: AttemptPaths, *, force: bool) -> None:
        raise NotImplementedError

    def read_log(self, paths: AttemptPaths, offset: int, size: int) -> bytes:
        raise NotImplementedError

    def run(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        raise NotImplementedError

    def list_files(self, request: Request, pattern: str) -> list[FileEntry]:
        raise NotImplementedError

    def checkpoint_folder(self, request: Request) -> str:
        """Return where the attempt's checkpoints lie on the host, as its files and commands know it."""
        raise NotImplementedError

    def gpu(self) -> Gpu | None:
        raise NotImplementedError

    def close(self) -> None:
        """Stop watching; the connection is not ours to close."""
        raise NotImplementedError
