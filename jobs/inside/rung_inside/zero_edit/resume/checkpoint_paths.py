"""Finds the path of a file that is saved or loaded, and its name in the checkpoint folder."""

from __future__ import annotations

import os
from typing import Any


def path_of(target: Any) -> str | None:
    """Return the path of a file given by name or as an open file; None for a buffer."""
    if isinstance(target, (str, os.PathLike)):
        return os.fsdecode(target)
    named = getattr(target, "path", None) or getattr(target, "name", None)
    return named if isinstance(named, str) else None


def name_in_folder(path: str) -> str | None:
    """Return the first part of a path below the checkpoint folder; None if it is elsewhere."""
    folder = os.environ.get("RUNG_CHECKPOINT_DIR", "")
    if not folder:
        return None
    inside = os.path.relpath(os.path.realpath(path), os.path.realpath(folder))
    first = inside.split(os.sep, 1)[0]
    return None if first in (os.curdir, os.pardir) or os.path.isabs(inside) else first


def is_rungs_own() -> bool:
    """Return whether Rung itself saves and restores the checkpoints of this run."""
    return os.environ.get("RUNG_CHECKPOINT_BY") == "rung" and os.environ.get("RUNG_MODE") == "zero-edit"
