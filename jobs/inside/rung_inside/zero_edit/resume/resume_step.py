"""Starts the count of updates at the step of the checkpoint that the script has really loaded.

Writes a `resumed` record: at once if the checkpoint is the one asked for, else before the first update.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from rung_inside.contract import asked_knobs, records
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.resume.checkpoint_paths import name_in_folder

# Names for the number of updates in the checkpoints of scripts.
NAMES = ("step", "global_step", "iteration", "iter", "iter_num", "it", "num_updates", "update", "steps", "n_iter")
WITHIN = ("state", "trainer_state", "meta", "train_state", "progress")
# File and step of the last checkpoint loaded from the folder that is not the one asked for.
_other_checkpoint: list[tuple[str, int | None]] = []
# Step and file of the one asked for, while nothing shows yet that the script makes updates.
_asked_checkpoint: list[tuple[int, str]] = []


class _Start:
    """Whether the start of the run has been reported."""

    is_reported = False


def install(_torch: Any) -> None:
    run_state.subscribe("loaded", _on_loaded)
    run_state.subscribe("backward", _on_first_update)
    run_state.subscribe("before_update", _on_first_update)


def _on_loaded(path: str, state: Any) -> None:
    if _Start.is_reported:
        return
    asked = os.environ.get("RUNG_CHECKPOINT", "")
    name = name_in_folder(path)
    if asked and _is_within(path, asked):
        step = run_state.first_step()
        if not os.environ.get("RUNG_CHECKPOINT_STEP", "").strip().isdigit():
            step = step_in_checkpoint(path, state) or 0
        start = (step, name or os.path.basename(os.path.normpath(asked)))
        if asked_knobs.may_change():
            report_start(*start)
        else:
            # A script that is only watched may have no updates to count from there.
            _asked_checkpoint[:] = [start]
    elif name is not None:
        step_inside = step_in_checkpoint(path, state)
        # The other files of the same folder may not have it.
        known = next((step for file, step in _other_checkpoint if file == name), None)
        _other_checkpoint[:] = [(name, known if step_inside is None else step_inside)]


def _is_within(path: str, asked: str) -> bool:
    inside, outer = os.path.realpath(path), os.path.realpath(asked)
    return inside == outer or inside.startswith(outer + os.sep)


def _on_first_update(*_: Any) -> None:
    """Report where the run starts, if nothing has been reported before its first update."""
    if _Start.is_reported:
        return
    if _asked_checkpoint:
        report_start(*_asked_checkpoint[0])
        return
    asked = os.path.basename(os.path.normpath(os.environ.get("RUNG_CHECKPOINT", "") or "."))
    name, step = _other_checkpoint[-1] if _other_checkpoint else ("none", 0)
    if _other_checkpoint:
        wanted = f"asked was {asked}" if asked != "." else "asked was to begin from scratch"
        at_step = f"at its step {step}" if step is not None else "whose step is not known: counted from 0"
        patch.note(f"the script went on from {name}, {at_step}; {wanted}")
    elif asked != ".":
        patch.note(f"the script did not load {asked}: it begins from scratch")
    report_start(step or 0, name)


def report_start(step: int, name: str) -> None:
    """Count from this step on, and record it with the file that the run goes on from."""
    _Start.is_reported = True
    for event in ("backward", "before_update"):
        run_state.unsubscribe(event, _on_first_update)
    run_state.resume_at(step)
    records.emit("resumed", step=step, file=name)


def step_in_checkpoint(path: str, state: Any) -> int | None:
    """Return the number of updates in a checkpoint; None if it has none."""
    found = _step_in(state)
    if found is None:
        found = _step_in(_trainer_state(path))
    return found


def _step_in(state: Any) -> int | None:
    if not isinstance(state, Mapping):
        return None
    for name in NAMES:
        number = _as_count(state.get(name))
        if number is not None:
            return number
    inner = (state.get(name) for name in WITHIN)
    return next((step for each in inner if (step := _step_in(each)) is not None), None)


def _as_count(value: Any) -> int | None:
    if hasattr(value, "numel") and value.numel() == 1:
        value = value.item()
    return value if type(value) is int and value >= 0 else None


def _trainer_state(path: str) -> Any:
    """Return the trainer state of transformers beside a file."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    try:
        with open(os.path.join(folder, "trainer_state.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None
