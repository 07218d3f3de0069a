"""The objects that a pickle may name or build here. None of them is an object of the class that the pickle names."""

from __future__ import annotations

import _compat_pickle
from typing import Any, NamedTuple

from rung_inside.verify.pickles.opcodes import damaged

# What torch.load maps to another module.
MOVED = {"torch.tensor": "torch._tensor"}
# Larger numbers may be chosen so that they all have the same hash.
KEY_BITS = 60


class Name(NamedTuple):
    """A global that a pickle names; it is never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"[:200]


def name_of(module: Any, name: Any, protocol: int) -> Name:
    """Return the global that a pickle names, with its name in this Python and this torch."""
    if type(module) is not str or type(name) is not str:
        raise damaged("a name that is no text")
    if protocol < 3:  # pickle maps the names of Python 2
        module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
        module = _compat_pickle.IMPORT_MAPPING.get(module, module)
    return Name(MOVED.get(module, module), name)


class Dummy(dict):  # type: ignore[type-arg]
    """Replaces an object of any class; keeps its data, so that tensors in it are found."""

    def __init__(self, name: Name, args: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.name = name
        # An object gets its state once. A second one would be given to whatever the first one put in its place.
        self.built = False
        if args:
            self["<args>"] = args

    # Two objects are never the same key: comparing and hashing what a stranger nests takes exponential time.
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other


class Fixed(Dummy):
    """Replaces an attribute of a class, or another object that belongs to a library and not to the pickle."""


class Arguments(tuple):  # type: ignore[type-arg]
    """A tuple with a global in it that may only be used, not kept: the arguments of a call, or of an object."""


class Ordered(dict):  # type: ignore[type-arg]
    """Replaces an OrderedDict, a defaultdict or a Counter."""

    built = False


class Bag(list):  # type: ignore[type-arg]
    """Replaces a set, a frozenset or a deque: nothing in it is hashed."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other


class Key:
    """Replaces a key of a dict that is no text and no small number, and that may take long to hash."""

    def __init__(self, value: Any) -> None:
        self.value = value


def fill(target: dict[Any, Any], items: list[Any]) -> None:
    """Put keys and values that follow each other into a dict."""
    if len(items) % 2:
        raise damaged("a key without a value")
    for key, value in zip(items[::2], items[1::2]):  # noqa: B905 - Python 3.8
        target[_key(key)] = value


def _key(value: Any) -> Any:
    """Return what stands for a key. A tuple that is nested cleverly takes exponential time to hash."""
    if type(value) in (str, bool, type(None), Name) or (type(value) is int and value.bit_length() < KEY_BITS):
        return value
    if isinstance(value, (Dummy, Bag)):
        return value  # hashed by their identity
    if isinstance(value, (list, dict)):
        raise damaged("a key that cannot be one")
    return Key(value)
