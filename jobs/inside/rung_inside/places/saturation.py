"""Hands FP32 numbers over to FP16 code: what does not fit becomes the limit, and it is counted in how many updates.

Nothing waits for the GPU: the flags and the count stay there until a report reads them. Gradients pass unchanged, and
those that are too large become infinite, as everywhere else: the loss scaler needs to see them.
"""

from __future__ import annotations

from typing import Any

import torch

from rung_inside.numerics.nested_tensors import map_tensors
from rung_inside.places import counting

LIMIT = float(torch.finfo(torch.float16).max)
INFINITE = float("inf")
WIDE = (torch.float32, torch.float64)
# The limit as a tensor, by device and dtype: making one at each call would cost as much as using it.
_limits: dict[Any, Any] = {}


class _Counter:
    """For each device: whether this update has saturated, and how many have."""

    def __init__(self) -> None:
        self.flags: dict[Any, Any] = {}
        self.counts: dict[Any, Any] = {}
        self.is_touched = False

    def add(self, is_over: Any) -> None:
        if not counting.is_on():
            return
        self.is_touched = True
        flag = self.flags.get(is_over.device)
        if flag is None:
            self.flags[is_over.device] = is_over.clone()
            self.counts[is_over.device] = torch.zeros((), dtype=torch.int64, device=is_over.device)
        else:
            flag.logical_or_(is_over)


_counter = _Counter()


def end_update() -> None:
    """Count an update in which something was saturated."""
    if _counter.is_touched:
        _counter.is_touched = False
        for device, flag in _counter.flags.items():
            _counter.counts[device].add_(flag)
            flag.zero_()


def count() -> int:
    """Return the number of updates in which numbers were saturated; this waits for the GPU."""
    return max((int(each) for each in _counter.counts.values()), default=0)


class _Saturate(torch.autograd.Function):
    """Clamps in the forward pass; the gradient passes, so that a value that is too large can still shrink."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, bound: Any, dtype: Any) -> Any:
        ctx.dtype = tensor.dtype
        return torch.clamp(tensor, -bound, bound).to(dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient.to(ctx.dtype), None, None


def saturated(value: Any, dtype: Any = None) -> Any:
    """Return the value with every FP32 tensor within FP16's limits, as FP32 or in this dtype."""
    return map_tensors(value, lambda tensor: _saturated(tensor, dtype))


def _saturated(tensor: Any, dtype: Any) -> Any:
    if tensor.dtype not in WIDE or not tensor.numel():
        return tensor
    with torch.no_grad():
        peak = torch.linalg.vector_norm(tensor.detach(), INFINITE)
        infinite = peak == INFINITE
        # FP16 holds infinity. It is what the FP32 code computed, so it stays.
        bound = torch.where(infinite, peak, _limit(peak))
        _counter.add((peak > LIMIT) ^ infinite)
    return _Saturate.apply(tensor, bound, dtype or tensor.dtype)  # type: ignore[no-untyped-call]


def _limit(like: Any) -> Any:
    key = (like.device, like.dtype)
    if key not in _limits:
        _limits[key] = torch.full_like(like, LIMIT)
    return _limits[key]


def widened(value: Any) -> Any:
    """Return the value with every FP16 tensor in it as FP32."""
    return map_tensors(value, lambda tensor: tensor.float() if tensor.dtype == torch.float16 else tensor)
