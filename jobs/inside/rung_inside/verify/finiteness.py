"""Checks whether tensors are finite: all numbers, or only samples for a cheap listing."""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator

from rung_inside.verify.verdict import POISONED, Unfit

CHUNK = 1 << 22
# Single numbers that frameworks keep about a run: the best score is infinite until there is one.
SCORE = re.compile(r"(?:^|[.: ])(?:callbacks|\w*(?:best|loss|score|metric|history|meter)\w*|kth_value)(?=[.{]|$)")
# Numbers sampled from the start, middle and end of a large tensor; NaN spreads fast.
SAMPLE = 1 << 14


def check_finite(tensors: Iterable[tuple[str, Any]], full: bool) -> None:
    """Raise `poisoned` at the first tensor that is not finite."""
    for name, tensor in tensors:
        if not is_finite(tensor, full) and not _is_mask(tensor) and not _is_score(name, tensor):
            raise Unfit(POISONED, f"{name or 'the tensor'} is not finite")


def tensors_in(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield every tensor of a nested content with its dotted name, at any depth."""
    waiting, seen = [("", content)], set()
    while waiting:
        name, value = waiting.pop()
        value = as_tensor(value)
        if callable(getattr(value, "is_floating_point", None)):  # a dtype has one too, but not a method
            yield name, value
        elif isinstance(value, (dict, list, tuple, set, frozenset)) and id(value) not in seen:
            seen.add(id(value))
            pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
            waiting += [(f"{name}.{key}" if name else str(key), item) for key, item in reversed(pairs)]


def as_tensor(value: Any) -> Any:
    """Return the tensor of a LazyTensor, or the value itself."""
    make = getattr(value, "rung_tensor", None)
    return value if make is None else make()


def is_finite(tensor: Any, full: bool = True) -> bool:
    """Return whether a tensor is finite; a finite sum proves it ten times faster than the exact test."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
        return True
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    flat = tensor.detach().reshape(-1)
    return all(_chunk_finite(chunk) for chunk in _chunks(flat, full))


def _chunks(flat: Any, full: bool) -> Iterator[Any]:
    count = flat.numel()
    if full or count <= 4 * SAMPLE:
        return (flat[at : at + CHUNK] for at in range(0, count, CHUNK))
    return (flat[at : at + SAMPLE] for at in (0, (count - SAMPLE) // 2, count - SAMPLE))


def _chunk_finite(chunk: Any) -> bool:
    import torch

    # A sum in FP16 would pass 65504.
    wide = chunk.float() if chunk.is_floating_point() and chunk.element_size() < 4 else chunk
    return bool(torch.isfinite(wide.sum())) or bool(torch.isfinite(wide).all())


def _is_mask(tensor: Any) -> bool:
    """Return whether a tensor is an attention mask (only 0 and -inf), which is not poisoned."""
    return bool(((tensor == 0) | (tensor == float("-inf"))).all()) and bool((tensor == 0).any())


def _is_score(name: str, tensor: Any) -> bool:
    return tensor.dim() == 0 and SCORE.search(name) is not None
