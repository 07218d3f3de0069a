"""Finds and replaces tensors in the nested values that modules take and return."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import torch

DEEPEST = 6
MOST = 4096


def tensors_in(thing: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested containers, and in the fields of objects such as batches and outputs."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif depth < DEEPEST:
        for each in _parts(thing):
            yield from tensors_in(each, depth + 1)


def _parts(thing: Any) -> Iterable[Any]:
    if isinstance(thing, Mapping):
        return list(thing.values())[:MOST]
    if isinstance(thing, (list, tuple)):
        return thing[:MOST]
    if isinstance(thing, (str, bytes, int, float, type(None))) or callable(thing):
        return ()
    return list(getattr(thing, "__dict__", {}).values())[:MOST]


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return the value with `change` made to each tensor in lists, tuples, mappings and dataclasses."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(map_tensors(item, change) for item in value)
    if type(value) is dict:
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    # The models of frameworks return mappings and dataclasses of their own.
    if isinstance(value, MutableMapping):
        changed = copy.copy(value)
        for key, item in value.items():
            changed[key] = map_tensors(item, change)
        return changed
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made: Any = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(made, field.name, map_tensors(getattr(value, field.name), change))
        return made
    return value
