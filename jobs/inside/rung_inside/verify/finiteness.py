"""Owns the question whether tensors are finite: all of each one, or only samples when a listing has to be cheap."""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator

from rung_inside.verify.verdict import POISONED, Unfit

CHUNK = 1 << 22
# Single numbers that frameworks keep of a run's course: the best score is infinite until there is one.
SCORE = re.compile(r"(?:^|[.: ])(?:callbacks|\w*(?:best|loss|score|metric|history|meter)\w*|kth_value)(?=[.{]|$)")
# Of a large tensor a cheap look takes this many numbers from its beginning, middle and end: NaN spreads fast.
SAMPLE = 1 << 14


def check_finite(tensors: Iterable[tuple[str, Any]], full: bool) -> None:
    """End with `poisoned` at the first tensor that is not finite."""
    for name, tensor in tensors:
        if not is_finite(tensor, full) and not _is_mask(tensor) and not _is_score(name, tensor):
            raise Unfit(POISONED, f"{name or 'the tensor'} is not finite")


def tensors_in(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield every tensor of a nested content with its dotted name, whatever the depth."""
    waiting, seen = [("", content)], set()
    while waiting:
        name, value = waiting.pop()
        value = made(value)
        if callable(getattr(value, "is_floating_point", None)):  # a dtype has one too, which is no method
            yield name, value
        elif isinstance(value, (dict, list, tuple, set, frozenset)) and id(value) not in seen:
            seen.add(id(value))
            pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
            waiting += [(f"{name}.{key}" if name else str(key), item) for key, item in reversed(pairs)]


def made(value: Any) -> Any:
    """Return the tensor that a value of the plain reader stands for, or the value itself."""
    make = getattr(value, "rung_tensor", None)
    return value if make is None else make()


def is_finite(tensor: Any, full: bool = True) -> bool:
    """Tell whether a tensor is finite: a finite sum proves it at ten times the speed of the exact test."""
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

    # A sum in FP16 passes 65504 by itself.
    wide = chunk.float() if chunk.is_floating_point() and chunk.element_size() < 4 else chunk
    return bool(torch.isfinite(wide.sum())) or bool(torch.isfinite(wide).all())


def _is_mask(tensor: Any) -> bool:
    """Tell an attention mask kept as a buffer (nothing but 0 and -inf) from a poisoned tensor."""
    return bool(((tensor == 0) | (tensor == float("-inf"))).all()) and bool((tensor == 0).any())


def _is_score(name: str, tensor: Any) -> bool:
    return tensor.dim() == 0 and SCORE.search(name) is not None
