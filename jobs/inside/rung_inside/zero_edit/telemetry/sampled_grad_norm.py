"""Samples the gradient norm of scripts that do not compute it, at a cost far below that of a step."""

from __future__ import annotations

from typing import Any

import torch

from rung_inside.zero_edit.telemetry.report_rate import is_due

# Updates between two norms. A norm reads the gradients once, which an optimizer does in every update.
EVERY = 16


class NormSampler:
    """Chooses the updates whose norm is computed: only those that are reported, and not each of them."""

    def __init__(self) -> None:
        self._newest = -EVERY

    def is_due(self, number: int) -> bool:
        """Return whether the norm of this update is to be computed."""
        return not 0 <= number - self._newest < EVERY and is_due(number)

    def norm(self, optimizer: Any, number: int) -> Any:
        """Return the norm of an optimizer's gradients as a tensor on their device."""
        self._newest = number
        return _norm(optimizer)


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
