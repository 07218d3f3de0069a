"""Makes a framework resume from the checkpoint that Rung chose, and from no other of this run."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable
from typing import Any

from rung_inside.contract import asked_knobs
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.resume import checkpoint_files
from rung_inside.zero_edit.resume.checkpoint_paths import is_rungs_own


def choose_checkpoint(given: Any, usable: Callable[[str], bool]) -> Any:
    """Return what to resume from if the script gives `given` (a path, "last", True, or None)."""
    if not asked_knobs.may_change() or is_rungs_own():
        return given
    chosen = os.environ.get("RUNG_CHECKPOINT", "")
    if chosen and usable(chosen):
        return chosen
    return None if given and not chosen and _was_rejected(given) else given


def _was_rejected(given: Any) -> bool:
    """Return whether Rung knew this checkpoint and decided to start from scratch."""
    if os.environ.get("RUNG_ATTEMPT", "1") in ("", "1"):
        return False
    if not isinstance(given, (str, os.PathLike)) or not os.path.exists(given):
        return True  # True, "last" and similar: the newest checkpoint, which Rung knows
    path, folder = os.path.abspath(os.fspath(given)), os.environ.get("RUNG_CHECKPOINT_DIR", "")
    known = fnmatch.fnmatch(os.path.basename(path), os.environ.get("RUNG_CHECKPOINT_PATTERN") or "*")
    return bool(folder) and os.path.dirname(path) == os.path.abspath(folder) and known


def report_loaded(path: Any, step: Any) -> None:
    """Publish a checkpoint that the framework loaded without torch.load."""
    run_state.publish("loaded", os.fspath(path), {"step": step})


def report_saved(path: Any) -> None:
    """Report a complete checkpoint with its count of updates."""
    checkpoint_files.report_saved(os.fspath(path), run_state.step())
