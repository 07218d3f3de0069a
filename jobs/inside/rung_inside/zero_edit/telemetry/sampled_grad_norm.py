"""Owns the gradient norm of scripts that never reckon it: now and then, at a cost that stays far below the step's."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch

# At least so many updates lie between two norms, and more where one costs above this share of the time between.
EVERY = 16
SHARE = 0.003


class _Turn:
    """Counts the updates until the next norm."""

    def __init__(self) -> None:
        self.left = 0
        self.at = 0.0
        self.every = EVERY


_turn = _Turn()


def now_and_then(optimizer: Any) -> Any:
    """Return the norm of an optimizer's gradients as a tensor where they are, or None when it is not its turn."""
    _turn.left -= 1
    if _turn.left > 0:
        return None
    began = perf_counter()
    step_time = (began - _turn.at) / _turn.every if _turn.at else 0.0
    norm = _norm(optimizer)
    cost = perf_counter() - began
    _turn.every = min(4096, max(EVERY, int(cost / (SHARE * step_time)) if step_time else EVERY))
    _turn.left, _turn.at = _turn.every, began
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
    # Half gradients overflow in their own squares; those of a few kinds are left to whoever clips them.
    if any(each.dtype != gradients[0].dtype for each in gradients) or gradients[0].dtype == torch.float16:
        return None
    norms = torch._foreach_norm(gradients) if hasattr(torch, "_foreach_norm") else [each.norm() for each in gradients]
    return torch.linalg.vector_norm(torch.stack(list(norms)))
