"""Writes the objects that read a log as JSON, and builds them again.

Only classes in state_classes.py are written and built. An object that two others share is written once, so that they
share it again. What is no part of the state, such as the settings of a job, stands in the text by its name only.
Most of a state are windows of numbers, and of pairs of numbers: those are written and built as a whole.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar

from rung.recovery.signatures import SIGNATURES, Signature
from rung.runner.log_reading.state_classes import CLASSES, ENUMS, TUPLES

Part = TypeVar("Part")
Outside = Mapping[str, object]
_PLAIN = frozenset({str, int, float, bool, type(None)})


class StateError(Exception):
    """The state cannot be written, or a text is no state."""


def encode(state: object, outside: Outside) -> str:
    """Return a state as text; `outside`: the objects that are no part of it, by name."""
    return json.dumps(_Encoder(outside).write(state), separators=(",", ":"))


def decode(text: str, outside: Outside) -> Any:
    """Return the state of a text, with the same objects outside."""
    try:
        return _Decoder(outside).read(json.loads(text))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise StateError(f"no state: {error!r}") from None


class _Encoder:
    def __init__(self, outside: Outside) -> None:
        self._outside = {id(each): name for name, each in outside.items() if each is not None}
        # The number of each object that is written; all of them stay alive meanwhile, since the state holds them.
        self._numbers: dict[int, int] = {}

    def write(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if id(value) in self._outside:
            return ["outside", self._outside[id(value)]]
        if isinstance(value, Enum):
            return ["enum", _known(ENUMS, value), value.value]
        if isinstance(value, Signature):
            return ["signature", SIGNATURES.index(value)]
        if id(value) in self._numbers:
            return ["same", self._numbers[id(value)]]
        return self._write_parts(value)

    def _write_parts(self, value: Any) -> list[Any]:
        kind = type(value)
        if kind is tuple:
            return ["tuple", *self._many(value)]
        if kind is bytes:
            return ["bytes", value.decode("latin-1")]
        if isinstance(value, tuple):
            return ["named", _known(TUPLES, value), *map(self.write, value)]
        if kind is MappingProxyType:
            return ["proxy", *self._pairs(value)]
        if kind in (set, frozenset):
            return [kind.__name__, *sorted(map(self.write, value), key=repr)]
        self._numbers[id(value)] = len(self._numbers)
        if kind is list:
            return ["list", *self._many(value)]
        if kind is deque:
            return ["deque", value.maxlen, *self._many(value)]
        if kind is dict:
            return ["dict", *self._pairs(value)]
        return ["object", _known(CLASSES, value), {name: self.write(each) for name, each in _attributes(value)}]

    def _many(self, values: Collection[Any]) -> list[Any]:
        """Return the parts of a sequence, and before them what they are."""
        kinds = set(map(type, values))
        if kinds <= _PLAIN:
            return ["values", *values]
        if kinds == {tuple} and _are_plain(chain.from_iterable(values)):
            return ["rows", *values]
        return ["parts", *map(self.write, values)]

    def _pairs(self, values: Mapping[Any, Any]) -> Iterator[list[Any]]:
        return ([self.write(key), self.write(each)] for key, each in values.items())


class _Decoder:
    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._built: list[Any] = []

    def read(self, value: Any) -> Any:
        if type(value) is not list:
            if type(value) not in _PLAIN:
                raise ValueError(value)
            return value
        tag, *parts = value
        return _READERS[tag](self, *parts)

    def _read_outside(self, name: str) -> object:
        return self._outside[name]

    def _read_enum(self, name: str, value: Any) -> Enum:
        return ENUMS[name](value)

    def _read_signature(self, index: int) -> Signature:
        return SIGNATURES[index]

    def _read_same(self, number: int) -> Any:
        return self._built[number]

    def _many(self, what: str, parts: tuple[Any, ...]) -> Iterable[Any]:
        """Return the parts of a sequence, or build them as they are needed."""
        if what == "parts":
            return map(self.read, parts)
        if what == "values" and _are_plain(parts):
            return parts
        if what == "rows" and set(map(type, parts)) <= {list} and _are_plain(chain.from_iterable(parts)):
            return map(tuple, parts)
        raise ValueError(what)

    def _read_tuple(self, what: str, *parts: Any) -> tuple[Any, ...]:
        return tuple(self._many(what, parts))

    def _read_bytes(self, text: str) -> bytes:
        return text.encode("latin-1")

    def _read_named(self, name: str, *parts: Any) -> Any:
        return TUPLES[name](*map(self.read, parts))

    def _read_proxy(self, *pairs: Any) -> MappingProxyType[Any, Any]:
        return MappingProxyType({self.read(key): self.read(each) for key, each in pairs})

    def _read_set(self, *parts: Any) -> set[Any]:
        return set(map(self.read, parts))

    def _read_frozenset(self, *parts: Any) -> frozenset[Any]:
        return frozenset(map(self.read, parts))

    def _read_list(self, what: str, *parts: Any) -> list[Any]:
        found = self._begin(list[Any]())
        found.extend(self._many(what, parts))
        return found

    def _read_deque(self, most: int | None, what: str, *parts: Any) -> deque[Any]:
        found = self._begin(deque[Any](maxlen=most))
        found.extend(self._many(what, parts))
        return found

    def _read_dict(self, *pairs: Any) -> dict[Any, Any]:
        found = self._begin(dict[Any, Any]())
        found.update((self.read(key), self.read(each)) for key, each in pairs)
        return found

    def _read_object(self, name: str, attributes: dict[str, Any]) -> Any:
        kind = CLASSES[name]
        found: object = self._begin(object.__new__(kind))
        for attribute, each in attributes.items():
            # A frozen one refuses its own way of setting it.
            object.__setattr__(found, attribute, self.read(each))
        return found

    def _begin(self, part: Part) -> Part:
        self._built.append(part)
        return part


_READERS = {name.removeprefix("_read_"): read for name, read in vars(_Decoder).items() if name.startswith("_read_")}


def _are_plain(values: Iterable[Any]) -> bool:
    return set(map(type, values)) <= _PLAIN


def _known(classes: Mapping[str, type], value: object) -> str:
    name = type(value).__name__
    if classes.get(name) is not type(value):
        raise StateError(f"{name} is not in the list of classes")
    return name


def _attributes(value: object) -> Iterator[tuple[str, Any]]:
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            yield name, getattr(value, name)
    yield from getattr(value, "__dict__", {}).items()
