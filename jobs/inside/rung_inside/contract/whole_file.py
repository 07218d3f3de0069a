"""Writes a file whole or not at all: under a hidden name, and renamed when it is on the disk. Standard library only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

# As it was when this was imported: zero-edit follows files by the renames that the script makes.
_replace = os.replace


def write_whole(path: str, fill: Callable[[Any], Any]) -> None:
    """Let `fill(file)` write to a temporary file beside the final name, and rename it once it is safely on the disk."""
    folder, name = os.path.split(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    # The leading dot and the ending keep it from matching any checkpoint pattern.
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        _replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Put the rename itself on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
