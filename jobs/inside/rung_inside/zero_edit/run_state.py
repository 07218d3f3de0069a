"""The state of the running training: its live objects (held weakly), its count of updates, and its events.

Events, and what their callbacks are given:

    forward(module, args, kwargs)   a root module is about to be called
    unanswered()                    many calls of root modules had no backward pass: the script leaves out batches
    backward(loss)                  the loss that backward starts from, without the scaler's scale: a tensor, or a
                                    float where it was scaled on the CPU
    before_update(optimizer)        the gradients are final: clipped, and about to be used
    updated(optimizer, skipped)     the update is over; skipped: True, False, or None if only the GPU knows
    loaded(path, state)             torch.load has read a file
    saved(path, state)              torch.save has written one

Must not import torch: it is used before torch is imported.
"""

from __future__ import annotations

import functools
import operator
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from rung_inside.contract import asked_knobs
from rung_inside.patching import on_exit, patch

EVENTS = ("forward", "unanswered", "backward", "before_update", "updated", "loaded", "saved")
_callbacks: dict[str, list[Callable[..., Any]]] = {name: [] for name in EVENTS}
# What each event calls now. Code that runs in every update calls it directly, and notes what it raises.
to_call: dict[str, Callable[..., Any]] = {}
# The callbacks that are called in a rehearsal too.
_in_rehearsals: list[Callable[..., Any]] = []
# The knobs asked, once they are read. Code that runs in every update looks here, without a call of `asked_knob`.
asked: dict[str, Any] = {}
_is_asked_read = [False]


class WeakList:
    """Holds objects in their order, without keeping them alive."""

    def __init__(self) -> None:
        self.references: list[weakref.ref[Any]] = []

    def add(self, thing: Any) -> bool:
        """Add an object; False if it was there."""
        if thing in self:
            return False
        self.references = [each for each in self.references if each() is not None]
        self.references.append(weakref.ref(thing))
        return True

    def remove(self, thing: Any) -> None:
        self.references = [each for each in self.references if each() is not thing]

    def __contains__(self, thing: object) -> bool:
        # A plain loop, because this runs several times in every update.
        for each in self.references:  # noqa: SIM110
            if each() is thing:
                return True
        return False

    def is_only(self, thing: Any) -> bool:
        """Return whether this object is the only one."""
        return len(self.references) == 1 and self.references[0]() is thing

    def __iter__(self) -> Iterator[Any]:
        held = [each() for each in self.references]
        return iter([thing for thing in held if thing is not None])

    def __len__(self) -> int:
        return len(list(iter(self)))


# Whether a number is on the host, where it can be read at once.
is_on_host: Callable[[Any], bool] = operator.attrgetter("is_cpu")
# The threads that are in the call of a root module, by their idents. Not a `threading.local`, which takes longer.
in_root: list[int] = []
optimizers = WeakList()
scalers = WeakList()
# Filled only where Rung saves the checkpoints.
schedulers = WeakList()
# Root modules: those that the script itself calls, if they have parameters to train.
models = WeakList()
# Modules that the script itself calls and does not train: what they return is computed, and no data.
frozen = WeakList()


def nothing() -> Any:
    """Stand for a reference to nothing."""
    return None


class _UpdateCounter:
    """Counts updates. Optimizers that take turns share a number, so that it is the script's iteration."""

    def __init__(self) -> None:
        # The step of the checkpoint that was loaded, once it is known.
        self.first: int | None = None
        self.updates = 0
        # The only optimizer of this turn, if it is one.
        self.only: Callable[[], Any] = nothing
        self._turn = WeakList()

    def begin(self, optimizer: Any) -> None:
        # If the optimizer of the last update is gone, this one has replaced it and does not share its number.
        if not len(self._turn) or optimizer in self._turn:
            self.updates += 1
            self._turn = WeakList()
        self._turn.add(optimizer)
        self.only = weakref.ref(optimizer) if self._turn.is_only(optimizer) else nothing


# Read directly by code that runs in every update.
count = _UpdateCounter()


class _Gradients:
    """What is known of the gradients since the newest update; set by the hooks, without the calls that events cost."""

    # Whether a scaler has unscaled them; before that their norm depends on the scale.
    are_unscaled = False
    # Their norm before they were clipped, as a tensor.
    norm: Any = None

    def forget(self) -> None:
        self.are_unscaled, self.norm = False, None


gradients = _Gradients()


class _ModelCalls:
    """Calls of root modules in training since the newest backward pass, and the most that one has had before it."""

    unanswered = 0
    most_answered = 1


model_calls = _ModelCalls()


def clipped(norm: Any) -> None:
    """Keep the norm of gradients that have been clipped, unless it depends on the scale."""
    if gradients.are_unscaled or live_scaler() is None:
        gradients.norm = norm


def updates() -> int:
    """Return how many updates this attempt has begun."""
    return count.updates


def resume_at(step: int) -> None:
    """Count from this step on: that of the checkpoint that the script has really loaded."""
    count.first = step


def first_step() -> int:
    """Return the step of the checkpoint that this attempt resumes from, 0 from scratch."""
    if count.first is not None:
        return count.first
    text = os.environ.get("RUNG_CHECKPOINT_STEP", "").strip()
    return int(text) if text.isdigit() and os.environ.get("RUNG_CHECKPOINT") else 0


def step() -> int:
    """Return the number of the newest update over the whole run; skipped ones count."""
    first = count.first
    return count.updates + (first_step() if first is None else first)


def asked_knob(name: str) -> Any:
    """Return the value asked for a knob, or None; they are read once."""
    if not _is_asked_read[0]:
        _is_asked_read[0] = True
        asked.update((patch.quietly(asked_knobs.knobs) or {}) if asked_knobs.may_change() else {})
    return asked.get(name)


def live_scaler() -> Any:
    """Return the first scaler that is enabled, or None."""
    for reference in scalers.references:
        scaler = reference()
        # Not by `is_enabled()`: this runs several times in every update.
        if scaler is not None and scaler._enabled:
            return scaler
    return None


class Rehearsal:
    """Whether the script goes through what the checkpoint has behind it: nothing is updated, counted or reported."""

    is_on = False


def rehearse(is_on: bool) -> None:
    Rehearsal.is_on = is_on
    gradients.forget()
    for event in EVENTS:
        _choose_call(event)


def is_rehearsing() -> bool:
    return Rehearsal.is_on


def subscribe(event: str, callback: Callable[..., Any], *, in_rehearsals: bool = False) -> None:
    """Call `callback` at every such event; in a rehearsal only if it asks for that."""
    if callback not in _callbacks[event]:
        _callbacks[event].append(callback)
    if in_rehearsals:
        _in_rehearsals.append(callback)
    _choose_call(event)


def unsubscribe(event: str, callback: Callable[..., Any]) -> None:
    """Stop calling `callback`; a publish that is running still calls it."""
    _callbacks[event] = [each for each in _callbacks[event] if each != callback]
    _choose_call(event)


def step_aside() -> None:
    """Stop watching for good: the script asks for the knobs and reports by itself."""
    _is_asked_read[0] = True
    asked.clear()
    on_exit.turn_off()
    for event, callbacks in _callbacks.items():
        callbacks.clear()
        _choose_call(event)


def publish(event: str, *values: Any) -> None:
    """Call all callbacks of an event; what they raise becomes a note."""
    for callback in _callbacks[event]:
        # Asked for each: a callback may begin or end the rehearsal.
        if Rehearsal.is_on and callback not in _in_rehearsals:
            continue
        try:
            callback(*values)
        except Exception as error:
            patch.note_error(callback, error)


def _choose_call(event: str) -> None:
    """Let an event call its callback directly if it has only one, as in most runs; a rehearsal asks each of them."""
    callbacks = _callbacks[event]
    is_one = len(callbacks) == 1 and not Rehearsal.is_on
    to_call[event] = callbacks[0] if is_one else functools.partial(publish, event)


for _event in EVENTS:
    _choose_call(_event)
