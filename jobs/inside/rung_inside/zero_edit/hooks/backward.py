"""Publishes the loss of every backward pass, as it was before a scaler scaled it."""

from __future__ import annotations

import weakref
from typing import Any

from rung_inside.patching import patch
from rung_inside.zero_edit import run_state

# The newest loss that a scaler scaled: a weak reference to the scaled one, and the unscaled one without its graph.
_scaled: list[Any] = [None, None]


def install(torch: Any) -> None:
    # Tensor.backward and the frameworks all call this.
    patch.before(torch.autograd, "backward", _on_backward)
    patch.after(_scaler_class(torch), "scale", _on_scale)


def _scaler_class(torch: Any) -> Any:
    return getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler


def _on_scale(scaled: Any, _scaler: Any, outputs: Any) -> None:
    if scaled is not outputs and hasattr(outputs, "detach"):
        _scaled[:] = [weakref.ref(scaled), outputs.detach()]


def _on_backward(tensors: Any = None, *_: Any, **__: Any) -> None:
    loss = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    if loss is None or not hasattr(loss, "numel") or loss.numel() != 1:
        return
    reference, true = _scaled
    run_state.publish("backward", true if reference is not None and reference() is loss else loss)
