"""Writes Rung's own checkpoints whole or not at all, keeps a few of them, and loads one without running code.

Must be imported before torch.save and torch.load are patched: these files are not the script's.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import torch

from rung_inside.contract import kept_versions
from rung_inside.contract.whole_file import write_whole

_save, _load = torch.save, torch.load
# What the file is: another number means that this code cannot read it.
FORMAT = 1


def every() -> int:
    """Return after how many updates a checkpoint is due; 0: never."""
    text = os.environ.get("RUNG_CHECKPOINT_EVERY", "").strip()
    return int(text) if text.isdigit() else 0


def save(step: int, state: dict[str, Any]) -> str:
    """Write the checkpoint of a step, remove those that are too many, and return its name."""
    folder, pattern = os.environ["RUNG_CHECKPOINT_DIR"], os.environ["RUNG_CHECKPOINT_PATTERN"]
    name = pattern.replace("*", str(step), 1)
    write_whole(os.path.join(folder, name), lambda file: _save({"step": step, "rung": FORMAT, **state}, file))
    _prune(folder, *pattern.split("*", 1))
    return name


def load(path: str) -> Any:
    """Return the content of a checkpoint; raise ValueError for a file that is none of Rung's own."""
    state = _load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or state.get("rung") != FORMAT:
        raise ValueError("it is no checkpoint that this version of Rung has made")
    return state


def _prune(folder: str, before: str, after: str) -> None:
    """Remove the checkpoints that are too many, and drafts that a killed process left."""
    found = []
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            written = os.stat(path).st_mtime
            if name.startswith(before) and name.endswith(after):
                found.append((written, name))
            elif _is_draft(name, before) and time.time() - written > kept_versions.STALE_SECONDS:
                os.unlink(path)
    newest_first = [(name, written) for written, name in sorted(found, reverse=True)]
    for name in kept_versions.too_many(newest_first, kept_versions.how_many()):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


def _is_draft(name: str, before: str) -> bool:
    return name.startswith("." + before) and name.endswith(".tmp")
