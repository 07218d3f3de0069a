"""Finds the step of a checkpoint: in its content, else in its name, else in the optimizer's count.

An epoch is no step. What the job reported while saving is better; only the controller knows it.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any

KEYS = ("step", "global_step", "iteration", "iter_num", "iter", "num_updates", "current_step", "completed_steps")
# Where frameworks keep their counters, if not at the top.
FOLDERS = ("meta", "trainer_state", "train_state", "training_state", "extra_state", "trainer", "progress", "state")
STEP_IN_NAME = re.compile(r"(?:step|iteration|iter)s?[_=-]?(\d+)", re.IGNORECASE)
NUMBER_IN_NAME = re.compile(r"(?:^|[_=.-]|ckpt|checkpoint|model)(\d+)(?=$|[_=.-])", re.IGNORECASE)
MOST_STEPS = 1 << 62
EPOCH_IN_NAME = re.compile(r"(?<![a-z])(?:epoch|ep)[_=-]?\d+", re.IGNORECASE)


def step_of(content: Any, path: str) -> int | None:
    """Return the step in the content, else in the name, else the optimizer's count of updates."""
    inside = _inside(content)
    if inside is not None:
        return inside
    named, number = in_name(path)
    counted = _updates(content)
    if named is not None:
        return named
    # A bare number may be an epoch, which is smaller than the count of updates.
    if number is not None and number >= (counted or 0):
        return number
    return counted


def in_name(path: str) -> tuple[int | None, int | None]:
    """Return the number that a name calls a step, and the last other number that is no epoch."""
    # A version that Rung keeps of a file: the number in the file's own name is no step.
    name = os.path.basename(path.rstrip("/")).rpartition(".rung-")[2]
    stem = EPOCH_IN_NAME.sub("", os.path.splitext(name)[0] if not name.split(".")[-1].isdigit() else name)
    named, bare = STEP_IN_NAME.findall(stem), NUMBER_IN_NAME.findall(stem)
    return (int(named[-1]) if named else None), (int(bare[-1]) if bare else None)


def _inside(content: Any) -> int | None:
    if not isinstance(content, dict):
        return None
    places = [content, *(content[name] for name in FOLDERS if isinstance(content.get(name), dict))]
    for place in places:
        for key in KEYS:
            step = as_count(place.get(key))
            if step is not None:
                return step
    return None


def _updates(content: Any) -> int | None:
    """Return the largest count of updates in any optimizer's state of this content."""
    if not isinstance(content, dict):
        return None
    parts = [content, *content.values()]
    parts += [each for part in content.values() if isinstance(part, list) for each in part]
    counts = [_count(part["state"]) for part in parts if isinstance(part, dict) and isinstance(part.get("state"), dict)]
    return max((count for count in counts if count is not None), default=None)


def _count(state: dict[Any, Any]) -> int | None:
    steps = [as_count(each.get("step")) for each in state.values() if isinstance(each, dict)]
    return max((step for step in steps if step), default=None)


def as_count(value: Any) -> int | None:
    """Return a value as a count, or None if it is none."""
    if hasattr(value, "numel"):
        value = value.item() if value.numel() == 1 else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    fits = 0 <= value < MOST_STEPS and value == math.floor(value)
    return int(value) if fits else None
