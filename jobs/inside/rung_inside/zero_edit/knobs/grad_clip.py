"""Tightens the script's gradient clipping to the bound asked, and clips where the script does not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from rung_inside.numerics import grad_norm
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import param_dtype

# One update may clip each part of a model on its own.
MOST_CLIPS = 1000
_torch_clip = torch.nn.utils.clip_grad_norm_
_asked = run_state.asked
_gradients = run_state.gradients
# Parameters clipped by the script since their last update; the bounds used, each with its first parameter.
_clipped: set[int] = set()
_used: deque[tuple[float, int]] = deque(maxlen=MOST_CLIPS)


def install(_torch: Any) -> None:
    utils = torch.nn.utils
    patch.around(utils.clip_grad, "clip_grad_norm_", _clipping)
    patch.wrap(utils.clip_grad, "clip_grad_value_", _clip_value)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        setattr(utils, name, getattr(utils.clip_grad, name))


def take_used_bound(optimizer: Any) -> Any:
    """Return the bound of this optimizer's newest update, or "off", and forget it."""
    trained = set(map(id, _parameters(optimizer))) if _used else ()
    bounds = [bound for bound, first in _used if first in trained]
    _used.clear()
    return bounds[-1] if bounds else "off"


def _clipping(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `clip_grad_norm_`, with the bound asked where that is tighter."""

    def clip_grad_norm_(parameters: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
        if _asked or isinstance(parameters, torch.Tensor):
            norm = _clip_as_asked(original, parameters, max_norm, args, kwargs)
        else:
            # As `_clip_as_asked`, without its calls, for most scripts: the first parameter is trained.
            parameters = list(parameters)
            try:
                if parameters and parameters[0].grad is not None:
                    _used.append((float(max_norm), id(parameters[0])))
                else:
                    _record_clip(parameters, max_norm)
            except Exception as error:
                patch.note_error(_record_clip, error)
            # Without anything to unpack, which takes longer.
            norm = original(parameters, max_norm, *args, **kwargs) if args or kwargs else original(parameters, max_norm)
        if _gradients.are_unscaled:
            _gradients.norm = norm
        else:
            run_state.clipped(norm)
        return norm

    return clip_grad_norm_


def _clip_as_asked(original: Callable[..., Any], parameters: Any, max_norm: Any, args: Any, kwargs: Any) -> Any:
    """Clip to the bound asked, where that is tighter."""
    bound = max_norm if _asked.get("clip") is None else _tightened(max_norm)
    parameters = _as_list(parameters)
    patch.quietly(_record_clip, parameters, bound)
    # In FP16 a norm above 65504 is inf, and all gradients become zero.
    half = _asked and param_dtype.is_asked() and _is_plain_norm(*args, **kwargs) and _any_half(parameters)
    return _clip_half(parameters, float(bound)) if half else original(parameters, bound, *args, **kwargs)


def _is_plain_norm(norm_type: Any = 2.0, error_if_nonfinite: bool = False, _foreach: Any = None, **_: Any) -> bool:
    """Return whether this is the 2-norm, without an exception for non-finite norms."""
    return float(norm_type) == 2.0 and not error_if_nonfinite


def _clip_value(original: Callable[..., Any], parameters: Any, clip_value: Any, *args: Any, **kwargs: Any) -> Any:
    bound = _tightened(clip_value)
    parameters = _as_list(parameters)
    patch.quietly(_record_clip, parameters, bound)
    return original(parameters, bound, *args, **kwargs)


def _tightened(bound: Any) -> Any:
    asked = run_state.asked_knob("clip")
    return bound if asked is None else min(float(bound), float(asked))


def _as_list(parameters: Any) -> Any:
    return parameters if isinstance(parameters, torch.Tensor) else list(parameters)


def _record_clip(parameters: Any, bound: Any) -> None:
    held = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    # Scripts also pass frozen parameters, which no optimizer has.
    for each in held:
        if each.grad is not None:
            _used.append((float(bound), id(each)))
            break
    if _asked.get("clip") is not None:
        _clipped.update(map(id, held))


def is_due(optimizer: Any) -> bool:
    """Return whether the gradients of this optimizer must be clipped before its update."""
    return run_state.asked_knob("clip") is not None and not any(id(each) in _clipped for each in _parameters(optimizer))


def clip(optimizer: Any) -> None:
    """Clip the gradients of one optimizer to the bound asked, unless the script has clipped them."""
    if is_due(optimizer):
        bound = float(run_state.asked_knob("clip"))
        held = [each for each in _parameters(optimizer) if each.grad is not None]
        if held:
            run_state.clipped(_clip_half(held, bound) if _any_half(held) else _torch_clip(held, bound))
            _used.append((bound, id(held[0])))
    if _clipped:
        _clipped.difference_update(map(id, _parameters(optimizer)))


def _parameters(optimizer: Any) -> Iterable[Any]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _any_half(parameters: Any) -> bool:
    held = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    return any(each.grad is not None and each.grad.dtype == torch.float16 for each in held)


def _clip_half(parameters: Any, bound: float) -> Any:
    """Clip by a norm computed in FP32, and return that norm."""
    held = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    gradients = [each.grad for each in held if each.grad is not None]
    total = grad_norm.norm(gradients)
    if total is not None:
        grad_norm.clip(gradients, total, bound)
    return total
