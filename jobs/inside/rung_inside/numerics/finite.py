"""Owns the question whether tensors are finite, and the finding of tensors in whatever a module is given or returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

DEEPEST = 6
MOST = 4096


def tensors_in(thing: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Yield the tensors inside nested containers, batches and outputs of any class that shows its fields."""
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


def mapped(thing: Any, change: Any) -> Any:
    """Return the same containers with `change` made to each tensor; other classes are left as they are."""
    if isinstance(thing, torch.Tensor):
        return change(thing)
    if type(thing) in (list, tuple):
        return type(thing)(mapped(each, change) for each in thing)
    if type(thing) is dict:
        return {name: mapped(each, change) for name, each in thing.items()}
    return thing


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    """Tell whether every number is finite; the devices are asked once each."""
    answers: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        if (tensor.is_floating_point() or tensor.is_complex()) and tensor.numel():
            answers.setdefault(tensor.device, []).append(torch.isfinite(tensor.detach()).all())
    return all(bool(torch.stack(each).all()) for each in answers.values())


def all_sane(tensors: Iterable[torch.Tensor]) -> bool:
    """Tell whether no number is NaN or +inf: -inf is what a mask leaves in healthy outputs."""
    for tensor in tensors:
        if tensor.is_floating_point() and tensor.numel():
            values = tensor.detach()
            if bool((torch.isnan(values) | (values == float("inf"))).any()):
                return False
    return True


def norm(tensors: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """Return the norm of all of them together, on their device; None where there are none."""
    floats = [each.detach() for each in tensors if each.is_floating_point()]
    parts = [torch.linalg.vector_norm(each, dtype=torch.float32) for each in floats]
    return torch.linalg.vector_norm(torch.stack([each.to(parts[0].device) for each in parts])) if parts else None
