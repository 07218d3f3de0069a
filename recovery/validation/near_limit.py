"""Reads which modules of a run came near FP16's limit, and names them as places.

The record comes from the job, which can write anything. What cannot be true is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from rung.jobs.model.terminal_text import hidden_character
from rung.jobs.spec.fields import LONGEST_PLACE, PLACE
from rung.recovery.decide.replay_cure import MOST_PLACES, listed
from rung.recovery.logs.line_reader import FIELD, MAX_CURE
from rung.recovery.logs.step_count import MAX_STEP

LIMIT = 65504.0
# Numbers that are this many times smaller than the limit are near it, here and in a replay.
FACTOR = 8


@dataclass(frozen=True)
class NearLimit:
    """The largest numbers of the modules that came near the limit, in the updates that were watched."""

    updates: int
    watched: int
    activations: Mapping[str, float]
    gradients: Mapping[str, float]

    @property
    def modules(self) -> tuple[str, ...]:
        """Return all of them, those with the largest activations first."""
        return tuple(dict.fromkeys((*self.activations, *self.gradients)))

    @property
    def places(self) -> tuple[str, ...]:
        """Return the modules to keep in FP32. Gradients alone are no reason: the loss scaler bounds them."""
        return tuple(self.activations)


def read_near(text: str) -> NearLimit | None:
    """Return what a record says after its name; None if it cannot be true."""
    fields: dict[str, str] = dict(FIELD.findall(text))
    updates, watched = (_count(fields.get(name, "")) for name in ("updates", "watched"))
    if not updates or not watched or watched > updates:
        return None
    return NearLimit(updates, watched, *(_sizes(fields.get(name, "")) for name in ("activations", "gradients")))


def most_watched(one: NearLimit | None, other: NearLimit | None) -> NearLimit | None:
    """Return the record of more updates: it is later, or of the process that trained."""
    if one is None or other is None:
        return one or other
    return other if other.updates >= one.updates else one


def advice(places: tuple[str, ...]) -> str:
    """Return what to do about these places, in the words of the job file."""
    spelled = ", ".join(places)
    return f"to keep {listed(places)} in FP32 and the rest in FP16, write knobs: {{fp32_modules: [{spelled}]}}"


def are_places(names: tuple[object, ...]) -> bool:
    """Return whether all of these are names of places, and not too many."""
    return len(names) <= MOST_PLACES and all(isinstance(name, str) and _is_place(name) for name in names)


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 and int(text) < MAX_STEP else None


def _sizes(text: str) -> dict[str, float]:
    found = {}
    for pair in _unquoted(text[:MAX_CURE]).split(",")[:MOST_PLACES]:
        name, _, size = pair.rpartition(":")
        if _is_place(name) and (number := _size(size)) is not None:
            found[name] = number
    return found


def _is_place(name: str) -> bool:
    return len(name) <= LONGEST_PLACE and PLACE.fullmatch(name) is not None and not hidden_character(name)


def _size(text: str) -> float | None:
    try:
        size = float(text)
    except ValueError:
        return None
    return size if LIMIT / FACTOR <= size < LIMIT else None


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text)) if text.startswith('"') else text
    except ValueError:
        return ""
