"""Checks whether tensors are finite."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether every number is finite; waits for each device once."""
    answers: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        if (tensor.is_floating_point() or tensor.is_complex()) and tensor.numel():
            answers.setdefault(tensor.device, []).append(torch.isfinite(tensor.detach()).all())
    return all(bool(torch.stack(each).all()) for each in answers.values())


def all_sane(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether no number is NaN or +inf; masks leave -inf in healthy outputs."""
    for tensor in tensors:
        if tensor.is_floating_point() and tensor.numel():
            values = tensor.detach()
            if bool((torch.isnan(values) | (values == float("inf"))).any()):
                return False
    return True
