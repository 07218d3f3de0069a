"""Tensors that stay in their file: where their numbers are, checked against the file before anything is read."""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any, Iterator, Sequence

from rung_inside.verify.stored.bits import Bits
from rung_inside.verify.stored.mapped_file import Window
from rung_inside.verify.stored.verdict import CORRUPT, UNVERIFIED, Unfit

# Bytes of one number.
ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex128": 16, "complex64": 8, "complex32": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
    "quint8": 1, "qint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1, "float4_e2m1fn_x2": 1,
}  # fmt: skip
# These can be NaN or infinite. float4 has neither.
FLOATING = frozenset(
    name for name in ITEM_BYTES if name.startswith(("float", "bfloat", "complex")) and "float4" not in name
)
# Numbers that are read at once; also the most that is ever copied.
CHUNK = 1 << 22
# Numbers sampled from the start, middle and end of a large tensor; NaN spreads fast.
SAMPLE = 1 << 14
MOST_DIMENSIONS = 64
MOST_NUMBERS = 1 << 62

# The dimensions of a tensor that move through its storage: (stride, size), the largest stride first.
Moves = Sequence["tuple[int, int]"]


class Storage:
    """The raw numbers of some tensors. Its window is set when it is known where in the file they are."""

    def __init__(self, dtype: str, count: int) -> None:
        if not 0 <= count < MOST_NUMBERS:
            raise Unfit(CORRUPT, "a storage has an impossible size")
        self.dtype, self.count = dtype, count
        self.window: Window | None = None

    @property
    def nbytes(self) -> int:
        return self.count * ITEM_BYTES[self.dtype]

    def place(self, window: Window) -> None:
        """Set where the numbers are. A window that is too small for them is an error of the file."""
        if window.length < self.nbytes:
            raise Unfit(CORRUPT, f"a storage of {self.nbytes} bytes has only {window.length} bytes in the file")
        self.window = window

    def numbers(self, dtype: str, first: int, count: int) -> Any:
        """Return numbers of the mapped file without a copy: a flat torch tensor, or their bits without torch."""
        assert self.window is not None, "the reader has placed every storage"
        at = self.window.start + first * ITEM_BYTES[dtype]
        torch = sys.modules.get("torch")
        if torch is None:
            return Bits(self.window.buffer, dtype, at, count, ITEM_BYTES[dtype])
        kind = getattr(torch, dtype, None)
        if kind is None:
            raise Unfit(UNVERIFIED, f"holds numbers of the type {dtype}, which this torch does not know")
        with warnings.catch_warnings():
            # torch warns about memory that cannot be written to. Nothing here writes.
            warnings.simplefilter("ignore")
            return torch.frombuffer(self.window.buffer, dtype=kind, count=count, offset=at)


class StoredTensor:
    """A tensor by its place in a storage. All of it lies inside the storage; its numbers are not read yet."""

    def __init__(self, storage: Storage, offset: Any, size: Any, stride: Any, dtype: str | None = None) -> None:
        self.storage, self.dtype = storage, dtype or storage.dtype
        self.size, self.stride = _numbers(size), _numbers(stride)
        (self.offset,) = _numbers((offset,))
        if len(self.size) != len(self.stride):
            raise Unfit(CORRUPT, "a tensor has another number of sizes than of strides")
        self._dimensions = [*zip(self.stride, self.size)]  # noqa: B905 - Python 3.8
        if self.numel() and (self.offset + self.span()) * ITEM_BYTES[self.dtype] > storage.nbytes:
            raise Unfit(CORRUPT, "a tensor reaches beyond the end of its storage")

    def numel(self) -> int:
        """Return how many numbers it has, as torch counts them: those of an expanded tensor many times."""
        return math.prod(self.size)

    def span(self) -> int:
        """Return how many numbers of the storage lie between its first and its last, both included."""
        return 1 + sum((size - 1) * stride for stride, size in self._dimensions)

    def can_be_infinite(self) -> bool:
        return self.dtype in FLOATING and self.numel() > 0

    def item(self) -> Any:
        """Return the number of a tensor that has one."""
        return self.storage.numbers(self.dtype, self.offset, 1).item()

    def chunks(self) -> Iterator[Any]:
        """Yield all its numbers, each about once even if it is expanded, in pieces of at most CHUNK."""
        moves = self._moves()
        if moves is None:
            yield from self._flat(self.offset, self.span())
        else:
            yield from self._blocks(self.offset, moves)

    def samples(self) -> Iterator[Any]:
        """Yield numbers from its start, middle and end; all of them if it is small."""
        moves = self._moves()
        if moves is None or _is_dense(moves):
            span = self.span()
            ends = (0, (span - SAMPLE) // 2, span - SAMPLE)
            pieces = [(0, span)] if span <= 4 * SAMPLE else [(at, SAMPLE) for at in ends]
            yield from (self.storage.numbers(self.dtype, self.offset + at, count) for at, count in pieces)
        else:
            yield from (self._corner(moves, share) for share in (0, 1, 2))

    def _moves(self) -> Moves | None:
        """Return the dimensions that move, or None if they meet the same number by several ways."""
        moves = sorted((stride, size) for stride, size in self._dimensions if size > 1 and stride > 0)
        reach = 1
        for stride, size in moves:
            if stride < reach:
                return None
            reach += stride * (size - 1)
        return moves[::-1]

    def _flat(self, first: int, count: int) -> Iterator[Any]:
        for at in range(0, count, CHUNK):
            yield self.storage.numbers(self.dtype, first + at, min(CHUNK, count - at))

    def _blocks(self, first: int, moves: Moves) -> Iterator[Any]:
        if _is_dense(moves):
            yield from self._flat(first, _reach(moves))
        elif _count(moves) <= CHUNK:
            yield self._view(first, moves)
        else:
            stride, size = moves[0]
            rows = max(1, CHUNK // _count(moves[1:]))
            for at in range(0, size, rows):
                some = min(rows, size - at)
                inner = [(stride, some), *moves[1:]] if some > 1 else moves[1:]
                yield from self._blocks(first + at * stride, inner)

    def _corner(self, moves: Moves, share: int) -> Any:
        """Return a small block at the start (0), in the middle (1) or at the end (2)."""
        first = self.offset
        while _count(moves) > 4 * SAMPLE:
            (stride, size), moves = moves[0], moves[1:]
            first += stride * ((size - 1) * share // 2)
        return self._view(first, moves)

    def _view(self, first: int, moves: Moves) -> Any:
        flat = self.storage.numbers(self.dtype, first, _reach(moves))
        return flat.as_strided([size for _, size in moves], [stride for stride, _ in moves])


def _count(moves: Moves) -> int:
    return math.prod(size for _, size in moves)


def _reach(moves: Moves) -> int:
    return 1 + sum(stride * (size - 1) for stride, size in moves)


def _is_dense(moves: Moves) -> bool:
    return _count(moves) == _reach(moves)


def _numbers(values: Any) -> tuple[int, ...]:
    """Return sizes, strides or an offset as a tuple of counts."""
    if not isinstance(values, (tuple, list)) or len(values) > MOST_DIMENSIONS:
        raise Unfit(CORRUPT, "a tensor has an impossible shape")
    if not all(type(value) is int and 0 <= value < MOST_NUMBERS for value in values):
        raise Unfit(CORRUPT, "a tensor has an impossible shape")
    return tuple(values)
