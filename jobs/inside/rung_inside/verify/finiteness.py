"""Checks whether tensors are finite: all numbers, or only samples for a cheap listing."""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator
from weakref import WeakKeyDictionary

from rung_inside.verify.pickles.objects import Key
from rung_inside.verify.stored.bits import Bits
from rung_inside.verify.stored.tensor import CHUNK, ITEM_BYTES, Storage, StoredTensor
from rung_inside.verify.stored.verdict import POISONED, REFUSED, Unfit

# Single numbers that frameworks keep about a run: the best score is infinite until there is one.
SCORE = re.compile(r"(?:^|[.: ])(?:callbacks|\w*(?:best|loss|score|metric|history|meter)\w*|kth_value)(?=[.{]|$)")
# Tensors may share numbers, but to read all numbers this many times over is no honest checkpoint.
MOST_TIMES, FREE_BYTES = 64, 1 << 30
# To read some numbers costs about as much as so many bytes.
CALL_BYTES = 4096
LONGEST_NAME = 300


def check_finite(tensors: Iterable[tuple[str, StoredTensor]], full: bool) -> None:
    """Raise `poisoned` at the first tensor that is not finite."""
    scan = Scan(full)
    for name, tensor in tensors:
        if not scan.is_finite(tensor) and not _is_score(name, tensor) and not scan.is_mask(tensor):
            raise Unfit(POISONED, f"{name or 'the tensor'} is not finite")


def tensors_in(content: Any) -> Iterator[tuple[str, StoredTensor]]:
    """Yield every tensor of a nested content with its dotted name, at any depth."""
    waiting, seen = [("", content)], set()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, StoredTensor):
            yield name, value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
            waiting += [(_joined(name, key), item) for key, item in reversed(pairs) if _may_hold_tensors(item)]


def _may_hold_tensors(value: Any) -> bool:
    return isinstance(value, (StoredTensor, dict, list, tuple))


def _joined(name: str, key: Any) -> str:
    """Return the name of an item. A stranger's keys may be long, and nested deeply."""
    word = str(key)[:LONGEST_NAME] if isinstance(key, (str, int)) else type(key).__name__
    if isinstance(key, Key) and isinstance(key.value, tuple) and len(key.value) < 5:
        word = str(tuple(each for each in key.value if isinstance(each, int)))
    return (f"{name}.{word}" if name else word)[:LONGEST_NAME]


class Scan:
    """Reads the numbers of tensors, those of one storage as few times as possible."""

    def __init__(self, full: bool) -> None:
        self._full = full
        # Whether all numbers of a storage are finite; then all tensors in it are.
        self._finite: WeakKeyDictionary[Storage, dict[str, bool]] = WeakKeyDictionary()
        self._left = FREE_BYTES

    def is_finite(self, tensor: StoredTensor) -> bool:
        if not tensor.can_be_infinite():
            return True
        known = self._finite.setdefault(tensor.storage, {})
        if tensor.dtype not in known:
            self._left += MOST_TIMES * (tensor.storage.nbytes + CALL_BYTES)
            known[tensor.dtype] = self._full and self._all_finite(_whole(tensor).chunks())
        return known[tensor.dtype] or self._all_finite(tensor.chunks() if self._full else tensor.samples())

    def is_mask(self, tensor: StoredTensor) -> bool:
        """Return whether a tensor is an attention mask (only 0 and -inf), which is not poisoned."""
        zeros = False
        for found in map(_zeros_in_mask, self._counted(tensor.chunks())):
            if found is None:
                return False
            zeros = zeros or found
        return zeros

    def _all_finite(self, chunks: Iterable[Any]) -> bool:
        return all(_chunk_finite(chunk) for chunk in self._counted(chunks))

    def _counted(self, chunks: Iterable[Any]) -> Iterator[Any]:
        for chunk in chunks:
            self._left -= chunk.numel() * chunk.element_size() + CALL_BYTES
            if self._left < 0:
                raise Unfit(REFUSED, f"its tensors share their numbers more than {MOST_TIMES} times over")
            yield chunk


def _whole(tensor: StoredTensor) -> StoredTensor:
    """Return all numbers of the storage of a tensor."""
    count = tensor.storage.nbytes // ITEM_BYTES[tensor.dtype]
    return StoredTensor(tensor.storage, 0, (count,), (1,), tensor.dtype)


def _chunk_finite(chunk: Any) -> bool:
    """Return whether numbers are finite; a finite sum proves it ten times faster than the exact test."""
    assert chunk.numel() <= CHUNK, "no more is copied at once"
    if isinstance(chunk, Bits):
        return chunk.all_finite()
    import torch

    wide = _wide(chunk)
    return bool(torch.isfinite(wide.sum())) or bool(torch.isfinite(wide).all())


def _zeros_in_mask(chunk: Any) -> bool | None:
    """Return whether there are zeros in a part of a mask; None: it is none."""
    if isinstance(chunk, Bits):
        return chunk.has_zeros_beside_minus_infinity()
    wide = _wide(chunk)
    zeros = wide == 0
    return bool(zeros.any()) if bool((zeros | (wide == float("-inf"))).all()) else None


def _wide(chunk: Any) -> Any:
    """Return numbers in a type that every torch can compute with; a sum in FP16 would pass 65504."""
    import torch

    real = torch.view_as_real(chunk) if chunk.is_complex() else chunk
    return real.float() if real.element_size() < 4 else real


def _is_score(name: str, tensor: StoredTensor) -> bool:
    return not tensor.size and SCORE.search(name) is not None
