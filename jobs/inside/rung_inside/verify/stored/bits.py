"""Numbers of a file by their bits, as far as a check can do without torch, which takes seconds to load.

A float is NaN or infinite if all bits of its exponent are set. These are in its highest byte, and for most types in the
one below it, so that only one byte of each number is searched, and the other one where the first fits.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Literal, NamedTuple


class NeedsTorch(Exception):
    """Ends a check that cannot be done by bits alone."""


class Exponent(NamedTuple):
    """Where the exponent of a type is: the size of a number, its highest byte if all of the exponent's bits are set,
    which bits of the next byte are set then, and minus infinity as a whole number.
    """

    size: int
    highest: re.Pattern[bytes]
    next: int
    minus_infinity: int


_FULL = re.compile(rb"[\x7f\xff]")
# The highest byte of FP16 has the whole exponent.
_HALF = Exponent(2, re.compile(rb"[\x7c-\x7f\xfc-\xff]"), 0, 0xFC00)
_SINGLE = Exponent(4, _FULL, 0x80, 0xFF80_0000)
_DOUBLE = Exponent(8, _FULL, 0xF0, 0xFFF0_0000_0000_0000)
EXPONENTS = {
    "float16": _HALF,
    "bfloat16": Exponent(2, _FULL, 0x80, 0xFF80),
    "float32": _SINGLE,
    "float64": _DOUBLE,
    # Pairs of numbers.
    "complex64": _SINGLE,
    "complex128": _DOUBLE,
}
AT_ONCE = 1 << 16
# How Python calls whole numbers of so many bytes, and the numbers of a type.
WORDS: dict[int, Literal["H", "I", "Q"]] = {2: "H", 4: "I", 8: "Q"}
FORMATS = {"float32": "<f", "float64": "<d", "float16": "<e", "int64": "<q", "int32": "<i"}


class Bits:
    """Some numbers of a file, little-endian. What they are asked besides needs torch."""

    def __init__(self, buffer: Any, dtype: str, at: int, count: int, item_bytes: int) -> None:
        self._buffer, self._dtype, self._at, self._count, self._item_bytes = buffer, dtype, at, count, item_bytes
        self._end = at + count * item_bytes

    def numel(self) -> int:
        return self._count

    def element_size(self) -> int:
        return self._item_bytes

    def all_finite(self) -> bool:
        exponent = self._exponent()
        size, full = exponent.size, exponent.next
        highest = bytes(self._buffer[self._at + size - 1 : self._end : size])
        found = exponent.highest.finditer(highest)
        return not any(self._buffer[self._at + each.start() * size + size - 2] & full == full for each in found)

    def has_zeros_beside_minus_infinity(self) -> bool | None:
        """Return whether there are zeros; None: there is anything but zeros and minus infinity."""
        exponent, zeros = self._exponent(), False
        both = {0, 1 << (8 * exponent.size - 1)}
        # Most that are not so show it in their first numbers.
        for at in range(self._at, self._end, AT_ONCE):
            piece = memoryview(bytes(self._buffer[at : min(at + AT_ONCE, self._end)]))
            words = set(piece.cast(WORDS[exponent.size]))
            if words - both - {exponent.minus_infinity}:
                return None
            zeros = zeros or bool(words & both)
        return zeros

    def _exponent(self) -> Exponent:
        exponent = EXPONENTS.get(self._dtype)
        if exponent is None:
            raise NeedsTorch
        return exponent

    def item(self) -> Any:
        """Return the number, if it is one of a type that Python knows."""
        layout = FORMATS.get(self._dtype)
        if layout is None:
            raise NeedsTorch
        return struct.unpack_from(layout, self._buffer, self._at)[0]

    def __getattr__(self, name: str) -> Any:
        raise NeedsTorch

    def __getitem__(self, index: Any) -> Any:
        raise NeedsTorch
