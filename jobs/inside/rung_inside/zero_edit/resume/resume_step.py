"""Owns where the count of updates begins: at the step of the checkpoint that the script has really loaded.

Told in a `resumed` record: at once when it is the one asked for, else before the first update.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from rung_inside.contract import records
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.resume.checkpoint_paths import below

# Names under which scripts keep the number of updates in their checkpoints.
NAMES = ("step", "global_step", "iteration", "iter", "iter_num", "it", "num_updates", "update", "steps", "n_iter")
WITHIN = ("state", "trainer_state", "meta", "train_state", "progress")
# The file and the update that were loaded last from the checkpoint folder, where it is not the one asked for.
_other: list[tuple[str, int | None]] = []


class _Settled:
    """Whether it has been told where the run begins."""

    done = False


def install(_torch: Any) -> None:
    run_state.on("loaded", _see)
    run_state.on("backward", _begin)
    run_state.on("before_update", _begin)


def _see(path: str, state: Any) -> None:
    if _Settled.done:
        return
    asked = os.environ.get("RUNG_CHECKPOINT", "")
    name = below(path)
    if asked and _is_within(path, asked):
        step = run_state.first_step()
        if not os.environ.get("RUNG_CHECKPOINT_STEP", "").strip().isdigit():
            step = own_step(path, state) or 0
        _settle(step, name or os.path.basename(os.path.normpath(asked)))
    elif name is not None:
        step_inside = own_step(path, state)
        # The other files of the same folder may not have it.
        known = next((step for file, step in _other if file == name), None)
        _other[:] = [(name, known if step_inside is None else step_inside)]


def _is_within(path: str, asked: str) -> bool:
    inside, outer = os.path.realpath(path), os.path.realpath(asked)
    return inside == outer or inside.startswith(outer + os.sep)


def _begin(*_: Any) -> None:
    """Say where the run begins when nothing has been said before its first update."""
    if _Settled.done:
        return
    asked = os.path.basename(os.path.normpath(os.environ.get("RUNG_CHECKPOINT", "") or "."))
    name, step = _other[-1] if _other else ("none", 0)
    if _other:
        wanted = f"asked was {asked}" if asked != "." else "asked was to begin from scratch"
        said = f"at its step {step}" if step is not None else "whose step is not known: counted from 0"
        patch.note(f"the script went on from {name}, {said}; {wanted}")
    elif asked != ".":
        patch.note(f"the script did not load {asked}: it begins from scratch")
    _settle(step or 0, name)


def _settle(step: int, name: str) -> None:
    _Settled.done = True
    for event in ("backward", "before_update"):
        run_state.off(event, _begin)
    run_state.resume_at(step)
    records.emit("resumed", step=step, file=name)


def own_step(path: str, state: Any) -> int | None:
    """Return the number of updates that a checkpoint names itself; None where it does not."""
    found = _step_in(state)
    if found is None:
        found = _step_in(_trainer_state(path))
    return found


def _step_in(state: Any) -> int | None:
    if not isinstance(state, Mapping):
        return None
    for name in NAMES:
        number = _whole(state.get(name))
        if number is not None:
            return number
    inner = (state.get(name) for name in WITHIN)
    return next((step for each in inner if (step := _step_in(each)) is not None), None)


def _whole(value: Any) -> int | None:
    if hasattr(value, "numel") and value.numel() == 1:
        value = value.item()
    return value if type(value) is int and value >= 0 else None


def _trainer_state(path: str) -> Any:
    """Return what transformers writes beside its files."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    try:
        with open(os.path.join(folder, "trainer_state.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None
