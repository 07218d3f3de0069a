"""Gives modules their FP16 parameters and buffers as FP32 while their code runs; the modules keep the originals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch


def has_half(parts: Iterable[Any]) -> bool:
    """Return whether one of these modules has a parameter or a buffer of its own in FP16."""
    return any(
        tensor is not None and tensor.dtype == torch.float16
        for part in parts
        for tensor in (*part._parameters.values(), *part._buffers.values())
    )


@contextlib.contextmanager
def wide(parts: Iterable[Any]) -> Iterator[None]:
    """Swap FP16 tensors for FP32 copies. Gradients reach the originals through the casts."""
    parts = list(parts)
    held = [
        (tensors, name, tensor, tensor.float())
        for part in parts
        for tensors in (part._parameters, part._buffers)
        for name, tensor in tensors.items()
        if tensor is not None and tensor.dtype == torch.float16
    ]
    for tensors, name, _, copy in held:
        tensors[name] = copy
    # Recurrent layers keep a list of their weights beside the names.
    lists = [(part, part._flat_weights) for part in parts if held and hasattr(part, "_flat_weights")]
    try:
        for part, _ in lists:
            part._flat_weights = [getattr(part, name) for name in part._flat_weights_names]
        yield
    finally:
        for tensors, name, tensor, copy in held:
            _put_back(tensors, name, tensor, copy)
        for part, weights in lists:
            part._flat_weights = weights


def _put_back(tensors: Any, name: str, tensor: Any, copy: Any) -> None:
    # The code may have replaced a buffer, or changed it in place, as a batch norm does.
    now = tensors.get(name)
    tensors[name] = tensor
    is_changed = now is not copy or copy._version > 0
    if not isinstance(tensor, torch.nn.Parameter) and isinstance(now, torch.Tensor) and is_changed:
        with torch.no_grad():
            tensor.copy_(now)
