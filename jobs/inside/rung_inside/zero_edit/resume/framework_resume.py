"""Owns where a framework's own resume goes on from: the checkpoint that Rung has chosen, and no other of this run's."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable
from typing import Any

from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.resume import checkpoint_files


def instead_of(own: Any, usable: Callable[[str], bool]) -> Any:
    """Return what to resume from where the script says `own` (a path, a word such as "last", True, or nothing)."""
    chosen = os.environ.get("RUNG_CHECKPOINT", "")
    if chosen and usable(chosen):
        return chosen
    return None if own and not chosen and _passed_over(own) else own


def _passed_over(own: Any) -> bool:
    """Tell whether Rung knew this checkpoint and has decided to begin anew instead."""
    if os.environ.get("RUNG_ATTEMPT", "1") in ("", "1"):
        return False
    if not isinstance(own, (str, os.PathLike)) or not os.path.exists(own):
        return True  # True, "last" and their like: the newest one, which Rung knows
    path, folder = os.path.abspath(os.fspath(own)), os.environ.get("RUNG_CHECKPOINT_DIR", "")
    known = fnmatch.fnmatch(os.path.basename(path), os.environ.get("RUNG_CHECKPOINT_PATTERN") or "*")
    return bool(folder) and os.path.dirname(path) == os.path.abspath(folder) and known


def say_loaded(path: Any, step: Any) -> None:
    """Tell of a checkpoint that the framework has loaded in ways that torch.load does not show."""
    run_state.publish("loaded", os.fspath(path), {"step": step})


def say_saved(path: Any) -> None:
    """Report a checkpoint that is whole now, with the count of updates that it holds."""
    checkpoint_files.tell(os.fspath(path), run_state.step())
