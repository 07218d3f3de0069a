"""Owns the gradient norm and clipping by it, safe for gradients that are not finite or whose squares are not."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch


def norm_of(gradients: Iterable[torch.Tensor]) -> float:
    """Return the 2-norm of all gradients together: finite exactly when every gradient is."""
    held = list(gradients)
    if not held:
        return 0.0
    norm = _norm(held)
    # Squares pass FP32's range long before the gradients do.
    return norm if math.isfinite(norm) else _norm([gradient.double() for gradient in held])


def _norm(gradients: list[torch.Tensor]) -> float:
    norms = [
        torch.linalg.vector_norm(gradient.float() if gradient.dtype == torch.float16 else gradient).to("cpu")
        for gradient in gradients
    ]
    return float(torch.linalg.vector_norm(torch.stack(norms)))


def clip(gradients: Iterable[torch.Tensor], norm: float, max_norm: float) -> None:
    """Scale the gradients down to `max_norm`; gradients that are not finite are left for the skip to see."""
    if not math.isfinite(norm) or norm <= max_norm:
        return
    for gradient in gradients:
        gradient.mul_(max_norm / norm)
