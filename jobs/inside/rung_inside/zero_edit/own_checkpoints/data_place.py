"""Follows the DataLoaders of a script: how often each was gone through, and how many batches it has handed out.

A place is brought back by going through the same pass again: the random state from before the pass, then past the
batches that were handed out. Nothing is computed with them. A loader whose class has an `__iter__` of its own may
fetch ahead, so its place is not known.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import data
from torch.utils.data import dataloader

from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.own_checkpoints import random_state

# A loader without a new batch in so many updates does not feed the training any more.
LONGEST_BATCH = 64


class Place:
    """The place in one DataLoader."""

    def __init__(self, loader: Any, number: int) -> None:
        self.number = number
        # A loader that a script makes in the head of its loop is gone while the loop runs.
        self.loader = weakref.ref(loader)
        self.size = [-1, 0]
        # The passes that have begun, the batches handed out in the last one, and whether that is over.
        self.passes = 0
        self.handed = 0
        self.is_over = True
        # The random state before the pass, and before its first batch.
        self.start: dict[str, Any] = {}
        self.first: dict[str, Any] | None = None
        # The update that the last batch was for; whether any was; whether a batch came since the last update.
        self.used_at = -1
        self.is_trained_on = False
        self.is_fresh = False
        # A pass that the checkpoint has behind it: one batch shows the script that there is data, and no more.
        self.is_token = False
        # A checkpoint at the very end of a pass is reached after such a batch: the script may need one to go on.
        self.ends_at = 0

    def begin(self, loader: Any) -> None:
        self.passes, self.size = self.passes + 1, size_of(loader)
        self.handed, self.is_over, self.is_token, self.ends_at, self.first = 0, False, False, 0, None
        self.start = {"random": random_state.capture(gpus=False), "generators": _generators(loader)}

    def end(self) -> None:
        """End the pass; a script may make a loader for each, so nothing of it is kept."""
        self.is_over, self.start, self.first = True, {}, None
        # An update after a validation did not come from its batches.
        self.is_fresh = False

    def state(self) -> dict[str, Any]:
        """Return the place as values that can be saved."""
        known = {"passes": self.passes, "trained": self.is_trained_on, "active": self.feeds()}
        if not known["active"]:
            return known
        place = {"handed": self.handed, "start": self.start, "first": self.first}
        return {**known, **place, "size": self.size}

    def feeds(self) -> bool:
        """Return whether this loader feeds the training now."""
        is_recent = run_state.updates() - self.used_at <= LONGEST_BATCH
        return self.is_trained_on and not self.is_over and is_recent


class _Loaders:
    """The places in the order of their first pass, and who is told what happens at them."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.by_iterator: weakref.WeakKeyDictionary[Any, Place] = weakref.WeakKeyDictionary()
        self.on_request: Callable[[Place], Any] = _nothing
        self.on_pass: Callable[[Place], Mapping[str, Any] | None] = _nothing
        self.on_arrival: Callable[[Place, str], Any] = _nothing


def _nothing(*_: Any) -> None:
    return None


_loaders = _Loaders()


def install(
    on_request: Callable[[Place], Any],
    on_pass: Callable[[Place], Mapping[str, Any] | None],
    on_arrival: Callable[[Place, str], Any],
) -> None:
    """Follow all loaders.

    `on_request(place)` is called before a batch is fetched, `on_pass(place)` when a pass begins: it returns the state
    of a place to go to. `on_arrival(place, why)` is called there; `why` tells why it could not be reached, or is empty.
    """
    _loaders.on_request, _loaders.on_pass, _loaders.on_arrival = on_request, on_pass, on_arrival
    patch.wrap(data.DataLoader, "__iter__", _iterate)
    patch.wrap(dataloader._BaseDataLoaderIter, "__next__", _next)
    run_state.subscribe("updated", _on_updated)


def feeding() -> Place | None:
    """Return the place of the loader that feeds the training; None: there is none."""
    return next((place for place in _loaders.places if place.feeds()), None)


def states() -> list[dict[str, Any]]:
    return [place.state() for place in _loaders.places]


def end_tokens() -> None:
    """Let all passes go on to their end."""
    for place in _loaders.places:
        place.is_token = False


def size_of(loader: Any) -> list[int]:
    """Return what tells one loader from another: its number of batches and the size of a batch, where known."""
    try:
        return [len(loader), loader.batch_size or 0]
    except TypeError:
        return [-1, loader.batch_size or 0]


def _iterate(original: Callable[..., Any], loader: Any) -> Any:
    # Looked up on the class: a subclass with an __iter__ of its own calls this one.
    if type(loader).__iter__ is not data.DataLoader.__iter__ or data.get_worker_info() is not None:
        return original(loader)
    found = patch.quietly(_begin_pass, loader)
    iterator = original(loader)
    if found is not None:
        place, wanted = found
        _loaders.by_iterator[iterator] = place
        if wanted is not None:
            patch.quietly(_go_to, place, iterator, wanted)
    return iterator


def _begin_pass(loader: Any) -> tuple[Place, Mapping[str, Any] | None]:
    place = next((each for each in _loaders.places if each.loader() is loader), None)
    if place is None:
        place = Place(loader, len(_loaders.places))
        _loaders.places.append(place)
    place.begin(loader)
    wanted = _loaders.on_pass(place)
    if wanted is not None:
        place.start = dict(wanted["start"])
        random_state.restore(place.start["random"])
        for generator, state in zip(_own_generators(loader), place.start["generators"]):  # noqa: B905 - Python 3.8
            generator.set_state(state)
    return place, wanted


def _go_to(place: Place, iterator: Any, wanted: Mapping[str, Any]) -> None:
    """Go past the batches that were handed out before; say that it was done, or why not."""
    why, size = "", place.size
    if size != wanted["size"]:
        why = f"its DataLoader has {_described(size)} now, and had {_described(wanted['size'])}"
    elif wanted["first"] is not None:
        place.first = wanted["first"]
        random_state.restore(wanted["first"])
        if wanted["handed"] == size[0]:
            place.is_token, place.ends_at = True, size[0]
            run_state.rehearse(True)
            return
        place.handed = _skip(iterator, wanted["handed"])
        if place.handed < wanted["handed"]:
            why = f"its DataLoader ended after {place.handed} batches, and had handed out {wanted['handed']}"
    _loaders.on_arrival(place, why)


def _described(size: list[int]) -> str:
    return f"{size[0]} batches of {size[1]}"


def _skip(iterator: Any, count: int) -> int:
    """Go past so many batches, and return how many there were."""
    # In this process only the numbers of the samples are drawn, and none of them is loaded.
    quick = type(iterator) is dataloader._SingleProcessDataLoaderIter and iterator._dataset_kind == 0
    fetch = iterator._next_index if quick else iterator._next_data
    for done in range(count):
        try:
            fetch()
        except StopIteration:
            return done
        iterator._num_yielded += 1
    return count


def _next(original: Callable[..., Any], iterator: Any) -> Any:
    place = _loaders.by_iterator.get(iterator)
    if place is None:
        return original(iterator)
    if place.is_token and place.handed:
        if not place.ends_at:
            place.end()
            raise StopIteration
        patch.quietly(_go_to_end, place, iterator)
    patch.quietly(_on_request, place)
    try:
        batch = original(iterator)
    except StopIteration:
        place.end()
        raise
    place.handed += 1
    place.is_fresh = True
    return batch


def _go_to_end(place: Place, iterator: Any) -> None:
    place.handed += _skip(iterator, place.ends_at - place.handed)
    place.is_token = False
    _loaders.on_arrival(place, "")


def _on_request(place: Place) -> None:
    if place.first is None:
        place.first = random_state.capture(gpus=False)
    _loaders.on_request(place)


def _on_updated(*_: Any) -> None:
    for place in _loaders.places:
        if place.is_fresh:
            place.is_fresh, place.is_trained_on = False, True
            place.used_at = run_state.updates()


def _own_generators(loader: Any) -> list[torch.Generator]:
    batches = getattr(loader, "batch_sampler", None)
    holders = (loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None))
    found = [getattr(each, "generator", None) for each in holders]
    return [each for each in found if isinstance(each, torch.Generator)]


def _generators(loader: Any) -> list[Any]:
    return [each.get_state() for each in _own_generators(loader)]
