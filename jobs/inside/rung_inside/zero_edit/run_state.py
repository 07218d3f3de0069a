"""Owns what is known of the running training: its live objects (held weakly), its count of updates, and the events.

Events, and what their callbacks are given:

    forward(module, args, kwargs)   a root module is about to be called
    backward(loss)                  the loss that backward starts from, without the scaler's scale
    clipped(norm)                   gradients have been clipped; their norm before that, as a tensor
    unscaled(optimizer)             the gradients of this optimizer are true ones from here on
    before_update(optimizer)        they are final: clipped, and about to be used
    updated(optimizer, skipped)     the update is over; skipped: True, False, or None where only the GPU knows
    loaded(path, state)             torch.load has read a file
    saved(path, state)              torch.save has written one

Must not import torch: it is asked before torch is there.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from rung_inside.contract import asked_knobs
from rung_inside.patching import patch

EVENTS = ("forward", "backward", "clipped", "unscaled", "before_update", "updated", "loaded", "saved")
_callbacks: dict[str, list[Callable[..., Any]]] = {name: [] for name in EVENTS}
_asked: list[Any] = []


class Weakly:
    """Holds things in the order they came, without keeping them alive."""

    def __init__(self) -> None:
        self._references: list[weakref.ref[Any]] = []

    def add(self, thing: Any) -> bool:
        """Take a thing in; False when it was there."""
        if thing in self:
            return False
        self._references = [each for each in self._references if each() is not None]
        self._references.append(weakref.ref(thing))
        return True

    def remove(self, thing: Any) -> None:
        self._references = [each for each in self._references if each() is not thing]

    def __contains__(self, thing: object) -> bool:
        # A plain loop: asked several times in every update.
        for each in self._references:  # noqa: SIM110
            if each() is thing:
                return True
        return False

    def is_only(self, thing: Any) -> bool:
        """Tell whether it is this thing alone that is held."""
        return len(self._references) == 1 and self._references[0]() is thing

    def __iter__(self) -> Iterator[Any]:
        held = [each() for each in self._references]
        return iter([thing for thing in held if thing is not None])

    def __len__(self) -> int:
        return len(list(iter(self)))


# `root`: whether this thread is inside the call of a root module.
inside = threading.local()
optimizers = Weakly()
scalers = Weakly()
# Modules that the script calls itself, not those called inside them; only ones with something to train.
models = Weakly()


class _Count:
    """Counts updates: optimizers that take turns share a number, so that it is the script's iteration."""

    def __init__(self) -> None:
        # The step that the count goes on from, once it is known what was really loaded.
        self.first: int | None = None
        self.updates = 0
        self._turn = Weakly()

    def begin(self, optimizer: Any) -> None:
        # One whose turn it was and that is gone has been replaced: this is not its neighbour but its successor.
        if self._turn.is_only(optimizer):
            self.updates += 1
            return
        if not len(self._turn) or optimizer in self._turn:
            self.updates += 1
            self._turn = Weakly()
        self._turn.add(optimizer)


_count = _Count()


def begin_update(optimizer: Any) -> int:
    """Count an update that this optimizer begins, and return its number over the whole run, from 1."""
    _count.begin(optimizer)
    return step()


def updates() -> int:
    """Return how many updates this attempt has begun."""
    return _count.updates


def resume_at(step: int) -> None:
    """Count from this step on: that of the checkpoint that the script has loaded, whatever it was asked to."""
    _count.first = step


def first_step() -> int:
    """Return the step of the checkpoint that this attempt resumes from, 0 from scratch."""
    if _count.first is not None:
        return _count.first
    text = os.environ.get("RUNG_CHECKPOINT_STEP", "").strip()
    return int(text) if text.isdigit() and os.environ.get("RUNG_CHECKPOINT") else 0


def step() -> int:
    """Return the number of the newest update over the whole run; skipped ones count."""
    return first_step() + _count.updates


def asked(name: str) -> Any:
    """Return what is asked of a knob, None for the script's own; asked many times in every update, so read once."""
    if not _asked:
        _asked.append(patch.quietly(asked_knobs.asked) or {})
    return _asked[0].get(name)


def on(event: str, callback: Callable[..., Any]) -> None:
    """Have `callback` called at every such event."""
    if callback not in _callbacks[event]:
        _callbacks[event].append(callback)


def off(event: str, callback: Callable[..., Any]) -> None:
    """Call it no more; one that is being told of now still hears it to the end."""
    _callbacks[event] = [each for each in _callbacks[event] if each != callback]


def publish(event: str, *values: Any) -> None:
    """Tell all who asked for it; what they raise is swallowed."""
    for callback in _callbacks[event]:
        try:
            callback(*values)
        except Exception as error:
            patch.complain(callback, error)
