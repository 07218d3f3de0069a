"""Finds the modules whose numbers come near FP16's limit: the next overflow would be there."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from rung_inside.numerics.nested_tensors import tensors_in
from rung_inside.places.saturation import LIMIT

# Numbers that are this many times smaller than the limit are near it.
FACTOR = 8
NEAR = LIMIT / FACTOR
# So many numbers are looked at in one piece: the copy of a large activation would show in the peak memory of a run.
PIECE = 1 << 20


def names_near_limit(model: Any, forward: Callable[[], Any]) -> list[str]:
    """Return the modules of a model that return such numbers in FP16 while `forward` runs, in the order they end."""
    found: list[str] = []
    returned: dict[int, weakref.ref[Any]] = {}

    def watch(name: str) -> Any:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            peaks = [largest(each) for each in own_outputs(output, returned)]
            if any(float(peak) >= NEAR for peak in peaks) and name not in found:
                found.append(name)

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


def own_outputs(output: Any, returned: dict[int, weakref.ref[Any]]) -> list[Any]:
    """Return the FP16 tensors that no module has returned before, and add them to `returned`, by their ids.

    A module that hands on what a part of it returned has no large number of its own. Nothing is kept alive: that would
    need memory.
    """
    made = [each for each in tensors_in(output) if each.dtype == torch.float16 and each.numel()]
    own = [each for each in made if id(each) not in returned or returned[id(each)]() is not each]
    returned.update({id(each): weakref.ref(each) for each in own})
    return own


def largest(tensor: Any) -> Any:
    """Return the largest size of a number below the limit, as a tensor; this does not wait for the GPU.

    The limit itself and infinity are masks, or were saturated.
    """
    whole = tensor.detach().unsqueeze(0) if tensor.dim() == 0 else tensor.detach()
    rows = max(1, PIECE * whole.shape[0] // whole.numel())
    return torch.stack([_largest(piece) for piece in whole.split(rows)]).amax()


def _largest(piece: Any) -> Any:
    size = piece.abs()
    return size.masked_fill_(~(size < LIMIT), 0.0).amax()
