"""Names checkpoint files, writes them atomically, and loads them without running code."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import torch

from rung_inside.contract import kept_versions
from rung_inside.contract.records import emit, is_first_rank
from rung_inside.contract.whole_file import write_whole

DEFAULT_DIR = "checkpoints"
DEFAULT_PATTERN = "step_*.pt"


def path_of(step: int) -> str:
    """Return the path of a step's checkpoint, from the job's folder and pattern."""
    folder = os.environ.get("RUNG_CHECKPOINT_DIR") or DEFAULT_DIR
    pattern = os.environ.get("RUNG_CHECKPOINT_PATTERN") or DEFAULT_PATTERN
    return os.path.join(folder, pattern.replace("*", str(step), 1))


def interval(default: int | None = None) -> int | None:
    """Return the steps between checkpoints: as asked, or else the default of the script."""
    text = os.environ.get("RUNG_CHECKPOINT_EVERY", "").strip()
    return int(text) if text else default


def save(path_or_step: Any, state: Mapping[str, Any]) -> str:
    """Write a checkpoint whole or not at all, report it, and return its path; only the first rank writes."""
    path = path_of(path_or_step) if isinstance(path_or_step, int) else os.fspath(path_or_step)
    if is_first_rank():
        write(path, without_numpy(state))
        step = path_or_step if isinstance(path_or_step, int) else state.get("step")
        emit("saved", step=step, file=_kept(path, step) or os.path.basename(path))
    return path


def _kept(path: str, step: Any) -> str | None:
    """Keep a version of the file if every save overwrites it, and return its name."""
    if not kept_versions.is_watched(path):
        return None
    with contextlib.suppress(OSError):
        return kept_versions.keep(path, step if isinstance(step, int) else None)
    return None


def write(path: str, state: Any) -> None:
    """Write to a temporary file beside the final name and rename it once it is safely on the disk."""
    write_whole(path, lambda file: torch.save(state, file))


def without_numpy(value: Any) -> Any:
    """Return `value` with numpy scalars as Python numbers; a load without running code refuses numpy scalars."""
    if isinstance(value, Mapping):
        return {key: without_numpy(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(without_numpy(item) for item in value)
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    return value


def load(path: str) -> dict[str, Any]:
    """Return the content of a checkpoint on the CPU; refuse a file that would run code."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    missing = [name for name in ("step", "model", "optimizer") if not isinstance(state, dict) or name not in state]
    if missing:
        raise ValueError(f"{path} is no checkpoint of this run: it has no {missing[0]!r}")
    return dict(state)
