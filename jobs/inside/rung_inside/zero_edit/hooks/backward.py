"""Publishes the loss of every backward pass, as it was before a scaler scaled it."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

from rung_inside.patching import patch
from rung_inside.zero_edit import run_state

# The parameters of `torch.autograd.backward` in all versions of torch so far.
PARAMETERS = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
# The newest loss that a scaler scaled: a weak reference to the scaled one; and the unscaled one, a number on the CPU, a
# tensor without its graph on a GPU. None: it is not a single number, so it is no loss.
_scaled: list[Any] = [lambda: _scaled, None]
_reference = weakref.ref
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
            if scaled is not outputs:
                # A call on a tensor takes longer here than ten of Python: its memory and its code are not in the cache.
                if run_state.is_on_host(outputs):
                    loss = outputs.item()
                else:
                    loss = None if outputs.ndim and outputs.numel() != 1 else outputs.detach()
                _scaled[0], _scaled[1] = _reference(scaled), loss
        except (AttributeError, RuntimeError, ValueError):
            # Several tensors, or one with several numbers.
            if hasattr(outputs, "detach"):
                _scaled[0], _scaled[1] = _reference(scaled), None
        except Exception as error:
            patch.note_error(scale, error)
        return scaled

    return scale


def _publishing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `torch.autograd.backward`, which publishes the loss first."""
    if _names(original) != PARAMETERS:
        return _publishing_any(original)

    # With torch's own parameters, because to pass on any others takes longer.
    def backward(
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: Any = None,
        create_graph: Any = False,
        grad_variables: Any = None,
        inputs: Any = None,
    ) -> Any:
        try:
            loss = _scaled[1] if tensors is not None and _scaled[0]() is tensors else _one_number(tensors)
            if loss is not None:
                if _calls.unanswered > _calls.most_answered:
                    _calls.most_answered = _calls.unanswered
                _calls.unanswered = 0
                _to_call["backward"](loss)
        except Exception as error:
            patch.note_error(_to_call["backward"], error)
        return original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)

    return backward


def _names(function: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except ValueError:
        return ()


def _publishing_any(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function in place of `torch.autograd.backward` that has other parameters."""
    publishing = _publishing(lambda tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs: None)

    def backward(*args: Any, **kwargs: Any) -> Any:
        publishing(args[0] if args else kwargs.get("tensors"))
        return original(*args, **kwargs)

    return backward


def _one_number(tensors: Any) -> Any:
    """Return the loss that a backward pass begins with; None if it does not begin with a single number."""
    loss = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    if loss is not None and _scaled[0]() is loss:
        return _scaled[1]
    return loss if hasattr(loss, "numel") and loss.numel() == 1 else None
