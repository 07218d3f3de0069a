"""Publishes the loss of every backward pass, as it was before a scaler scaled it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from rung_inside.patching import patch
from rung_inside.zero_edit import run_state

# The newest loss that a scaler scaled: a weak reference to the scaled one; and the unscaled one, a number on the CPU, a
# tensor without its graph on a GPU. None: it is not a single number, so it is no loss.
_scaled: list[Any] = [lambda: _scaled, None]
_to_call = run_state.to_call
_calls = run_state.model_calls


def install(torch: Any) -> None:
    # Tensor.backward and the frameworks all call this.
    patch.around(torch.autograd, "backward", _publishing)
    patch.around(_scaler_class(torch), "scale", _remembering)


def _scaler_class(torch: Any) -> Any:
    return getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler


def _remembering(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `GradScaler.scale`, which remembers what it scaled."""

    def scale(scaler: Any, outputs: Any) -> Any:
        scaled = original(scaler, outputs)
        try:
            if scaled is not outputs and hasattr(outputs, "detach"):
                # A call on a tensor takes longer here than ten of Python: its memory and its code are not in the cache.
                if outputs.ndim and outputs.numel() != 1:
                    loss = None
                else:
                    loss = outputs.item() if run_state.is_on_host(outputs) else outputs.detach()
                _scaled[0], _scaled[1] = weakref.ref(scaled), loss
        except Exception as error:
            patch.note_error(scale, error)
        return scaled

    return scale


def _publishing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `torch.autograd.backward`, which publishes the loss first."""

    def backward(*args: Any, **kwargs: Any) -> Any:
        try:
            loss: Any = args[0] if args else kwargs.get("tensors")
            if isinstance(loss, (list, tuple)) and loss:
                loss = loss[0]
            if loss is not None and _scaled[0]() is loss:
                loss = _scaled[1]
            elif not hasattr(loss, "numel") or loss.numel() != 1:
                loss = None
            if loss is not None:
                if _calls.unanswered > _calls.most_answered:
                    _calls.most_answered = _calls.unanswered
                _calls.unanswered = 0
                _to_call["backward"](loss)
        except Exception as error:
            patch.note_error(_to_call["backward"], error)
        return original(*args, **kwargs)

    return backward
