"""Checks the arrays and generators of NumPy in a pickle: NumPy trusts the types and sizes that it finds there.

A type that says that it holds objects, but not that they are listed, would make NumPy take any bytes for addresses.
"""

from __future__ import annotations

import math
import re
from typing import Any

from rung_inside.verify.pickles.keeping import check_plain, is_mapping
from rung_inside.verify.pickles.objects import Dummy, Fixed, Name
from rung_inside.verify.pickles.opcodes import LongText
from rung_inside.verify.stored.verdict import REFUSED, Unfit

NDARRAY = Name("numpy", "ndarray")
SEEDS = Name("numpy.random.bit_generator", "SeedSequence")
KIND = re.compile(r"[<>=|]?(?:([biufc])(\d{1,2})|([SUV])(\d{0,9})|([mM])(8)(?:\[\w{1,9}\])?|(O)(8?))")
# The flags of a type of objects, and those of them that no other type has.
OBJECT_FLAGS, POINTER_FLAGS = 63, 7
LARGEST = 1 << 31
BYTES = (bytes, bytearray, str, LongText)


class Dtype(Dummy):
    """Replaces a type of NumPy. Once it is used it may not change any more: what uses it would become wrong."""

    def __init__(self, letter: str, size: int, own: bool) -> None:
        super().__init__(Name("numpy", "dtype"))
        self.letter, self.size, self.own = letter, size, own


def dtype(machine: Any, args: tuple[Any, ...]) -> Dtype:
    """Return a type by its short name, the only way in which NumPy writes one."""
    found = KIND.fullmatch(args[0]) if args and type(args[0]) is str else None
    if found is None or len(args) > 3 or not all(type(each) in (bool, int) for each in args[1:]):
        raise _odd()
    letter, size = (each for each in found.groups() if each is not None)
    # Without the last argument this is NumPy's own object, which everything else uses, too.
    count = int(size or 0)
    return Dtype(letter, count * 4 if letter == "U" else count, len(args) == 3 and bool(args[2]))


def set_dtype(machine: Any, made: Dtype, state: Any) -> None:
    """Check the state of a type: where the fields are, how large it is, and whether it holds objects."""
    if type(state) is not tuple or len(state) not in (8, 9) or not made.own:
        raise _odd()
    version, order, inner, names, fields, size, alignment, flags = state[:8]
    if not all(type(each) is int for each in (version, size, alignment, flags)) or version not in (3, 4):
        raise _odd()
    if type(order) not in (str, bytes, LongText) or not -1 <= size < LARGEST or not 0 <= flags < 256:
        raise _odd()
    check_plain(machine, state[8:] if made.letter in "mM" else [each for each in state[8:] if each is not None])
    if made.letter in "SUV":
        made.size = max(size, 0)
    elif size != -1:
        raise _odd()
    if flags != OBJECT_FLAGS if made.letter == "O" else flags & POINTER_FLAGS:
        raise _odd()
    _check_fields(made, inner, names, fields)


def _check_fields(made: Dtype, inner: Any, names: Any, fields: Any) -> None:
    if made.letter != "V" and not (inner is None and names is None and fields is None):
        raise _odd()
    if inner is not None and (type(inner) is not tuple or len(inner) != 2 or names or _spread(inner) != made.size):
        raise _odd()
    if (fields is None) != (names is None) or (fields is not None and not is_mapping(fields)):
        raise _odd()
    if fields is not None and (type(names) is not tuple or not all(type(each) is str for each in names)):
        raise _odd()
    if fields is not None and set(names) != set(fields):
        raise _odd()
    for field in (fields or {}).values():
        if type(field) is not tuple or len(field) != 2 or type(field[1]) is not int or field[1] < 0:
            raise _odd()
        if field[1] + plain(field[0]).size > made.size:
            raise _odd()


def _spread(inner: tuple[Any, ...]) -> int:
    """Return how many bytes a small array inside a type has."""
    sides = inner[1] if type(inner[1]) is tuple else (inner[1],)
    if not all(type(side) is int and 0 <= side < LARGEST for side in sides) or len(sides) > 64:
        raise _odd()
    return plain(inner[0]).size * math.prod(sides)


def used(value: Any) -> Dtype:
    """Return a type that is used from now on."""
    if not isinstance(value, Dtype):
        raise _odd()
    value.built = True
    return value


def plain(value: Any) -> Dtype:
    """Return a type without objects in it."""
    if used(value).letter == "O":
        raise _odd()
    return value  # type: ignore[no-any-return]


def array(machine: Any, args: tuple[Any, ...]) -> Dummy:
    """Return an array that gets its content later."""
    if len(args) != 3 or args[0] != NDARRAY or args[1] != (0,) or type(args[2]) not in BYTES:
        raise Unfit(REFUSED, "would make an array in a way that NumPy does not write")
    return Dummy(NDARRAY)


def set_array(machine: Any, made: Dummy, state: Any) -> None:
    """Check the content of an array: a list of objects, or the bytes of numbers."""
    if type(state) is not tuple or len(state) != 5:
        raise _odd()
    _, shape, kind, _, data = state
    check_plain(machine, (state[0], shape, state[3]))
    if type(data) is not list if used(kind).letter == "O" else type(data) not in BYTES:
        raise _odd()
    made["<state>"] = state


def scalar(machine: Any, args: tuple[Any, ...]) -> Dummy:
    if not 1 <= len(args) <= 2 or not all(type(each) in BYTES for each in args[1:]):
        raise _odd()
    plain(args[0])
    return Fixed(Name("numpy.core.multiarray", "scalar"))


def from_buffer(machine: Any, args: tuple[Any, ...]) -> Dummy:
    """Return an array of protocol 5."""
    if len(args) != 4 or type(args[0]) not in BYTES:
        raise _odd()
    plain(args[1])
    check_plain(machine, args[2:])
    return Fixed(NDARRAY)


def seeds(machine: Any, args: tuple[Any, ...]) -> Dummy:
    if len(args) != 3 or args[0] != SEEDS:
        raise _odd()
    check_plain(machine, args[1:])
    return Dummy(SEEDS)


def _odd() -> Unfit:
    return Unfit(REFUSED, "holds an array or a type of numbers that NumPy does not write")
