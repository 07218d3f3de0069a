"""Owns the seam of an engine that serves a host of the list: images and files, beyond what every engine can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from jobs.gpu import Gpu
from runner.engine import Engine, Request


class HostEngine(Engine, Protocol):
    """An engine on a host that is reached over a connection; any method may raise HostUnreachable."""

    def ensure_image(self, image: str, tell: Callable[[str], None]) -> None:
        """Have the image on the host, telling how far it is."""

    def complaint(self, image: str, gpu: Gpu) -> str | None:
        """Say why an image that is there cannot run on this GPU; None: it can."""

    def checkpoint_folder(self, request: Request) -> str:
        """Return where the attempt's checkpoints lie on the host."""

    def close(self) -> None: ...
