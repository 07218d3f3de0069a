"""Finds the modules whose outputs come near FP16's limit: the next overflow would be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rung_inside.numerics.nested_tensors import tensors_in
from rung_inside.places.saturation import LIMIT

# Numbers that are this many times smaller than the limit are near it.
FACTOR = 8


def names_near_limit(model: Any, forward: Callable[[], Any]) -> list[str]:
    """Return the modules of a model that return such numbers in FP16 while `forward` runs, in the order they end."""
    found: list[str] = []
    # A module that hands on what a part of it returned has no large number of its own.
    returned: list[Any] = []

    def watch(name: str) -> Any:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            near = [each for each in tensors_in(output) if _is_near(each)]
            if any(all(each is not other for other in returned) for each in near) and name not in found:
                found.append(name)
            returned.extend(near)

        return hook

    handles = []
    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_hook(watch(name or type(model).__name__)))
        forward()
    finally:
        for handle in handles:
            handle.remove()
    return found


def _is_near(tensor: Any) -> bool:
    if tensor.dtype != torch.float16 or not tensor.numel():
        return False
    size = tensor.detach().abs()
    # The limit itself and infinity are masks, or were saturated.
    return bool(((size >= LIMIT / FACTOR) & (size < LIMIT)).any())
