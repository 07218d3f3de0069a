"""Computes norms and clips gradients by them, safe for gradients that are not finite or whose squares overflow."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch


def norm(tensors: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """Return the 2-norm of all tensors together, on their device; None if there are none."""
    floats = [each.detach() for each in tensors if each.is_floating_point()]
    # Squares of half-precision numbers overflow.
    parts = [
        torch.linalg.vector_norm(each, dtype=torch.float32 if each.element_size() < 4 else None) for each in floats
    ]
    if not parts:
        return None
    widest = max((each.dtype for each in parts), key=lambda dtype: torch.finfo(dtype).bits)
    total: torch.Tensor = torch.linalg.vector_norm(torch.stack([each.to(parts[0].device, widest) for each in parts]))
    return total


def norm_of(gradients: Iterable[torch.Tensor]) -> float:
    """Return the 2-norm of all gradients together as a number: finite exactly if every gradient is."""
    held = list(gradients)
    total = norm(held)
    if total is not None and not math.isfinite(total):
        # Squares overflow FP32 long before the gradients do.
        total = norm([gradient.double() for gradient in held])
    return 0.0 if total is None else float(total)


def clip(gradients: Iterable[torch.Tensor], total: float | torch.Tensor, max_norm: float) -> None:
    """Scale the gradients down from their norm `total` to `max_norm`, without waiting for the GPU.

    Gradients that are not finite stay as they are, so that the update is skipped.
    """
    size = total if isinstance(total, torch.Tensor) else torch.tensor(total, dtype=torch.float64)
    factor = torch.clamp(max_norm / (size + 1e-6), max=1.0)
    factor = torch.where(torch.isfinite(size), factor, torch.ones_like(factor)).float()
    for gradient in (each.detach() for each in gradients):
        if gradient.element_size() < 4:
            # In half precision the factor itself can round to zero; the product does not.
            gradient.copy_(gradient.float() * factor.to(gradient.device))
        else:
            gradient.mul_(factor.to(gradient.device))
