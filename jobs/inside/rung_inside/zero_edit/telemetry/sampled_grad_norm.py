"""Samples the gradient norm of scripts that do not compute it, at a cost far below that of a step."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch

# Updates between two norms; more if a norm costs above this share of the time between them.
EVERY = 16
SHARE = 0.003


class _Schedule:
    """Counts the updates until the next norm."""

    def __init__(self) -> None:
        self.left = 0
        self.at = 0.0
        self.every = EVERY


_schedule = _Schedule()


def sampled_norm(optimizer: Any) -> Any:
    """Return the norm of an optimizer's gradients as a tensor on their device, or None if it is not due."""
    _schedule.left -= 1
    if _schedule.left > 0:
        return None
    began = perf_counter()
    step_time = (began - _schedule.at) / _schedule.every if _schedule.at else 0.0
    norm = _norm(optimizer)
    cost = perf_counter() - began
    _schedule.every = min(4096, max(EVERY, int(cost / (SHARE * step_time)) if step_time else EVERY))
    _schedule.left, _schedule.at = _schedule.every, began
    return norm


def _norm(optimizer: Any) -> Any:
    gradients = [
        each.grad.detach()
        for group in optimizer.param_groups
        for each in group["params"]
        if each.grad is not None and each.grad.layout is torch.strided
    ]
    if not gradients or any(each.device != gradients[0].device for each in gradients):
        return None
    # Squares of half gradients overflow; mixed dtypes are left to the clipping.
    if any(each.dtype != gradients[0].dtype for each in gradients) or gradients[0].dtype == torch.float16:
        return None
    norms = torch._foreach_norm(gradients) if hasattr(torch, "_foreach_norm") else [each.norm() for each in gradients]
    return torch.linalg.vector_norm(torch.stack(list(norms)))
