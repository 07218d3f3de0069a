"""Owns gradient clipping: tightens the script's own to what is asked, and inserts one where an update had none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import param_dtype

# As many calls as one update may have, one for each part of a model.
MOST_CLIPS = 1000
_own_clip = torch.nn.utils.clip_grad_norm_
# Parameters clipped by the script since their last update; the bounds used, each with the first parameter it moved.
_clipped: set[int] = set()
_used: list[tuple[float, int]] = []


def install(_torch: Any) -> None:
    utils = torch.nn.utils
    for name, around in (("clip_grad_norm_", _clip_norm), ("clip_grad_value_", _clip_value)):
        patch.wrap(utils.clip_grad, name, around)
        setattr(utils, name, getattr(utils.clip_grad, name))


def used(optimizer: Any) -> Any:
    """Return the bound that this optimizer's newest update was clipped to, "off" when it was not; and forget it."""
    own = set(map(id, _parameters(optimizer))) if _used else ()
    bounds = [bound for bound, first in _used if first in own]
    _used.clear()
    return bounds[-1] if bounds else "off"


def _clip_norm(original: Callable[..., Any], parameters: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
    bound = _tightened(max_norm)
    parameters = _listed(parameters)
    patch.quietly(_note, parameters, bound)
    # In FP16 a norm above 65504 is inf, and all gradients become zero.
    half = param_dtype.asked() and _plain(*args, **kwargs) and _any_half(parameters)
    norm = _clip_half(parameters, float(bound)) if half else original(parameters, bound, *args, **kwargs)
    run_state.publish("clipped", norm)
    return norm


def _plain(norm_type: Any = 2.0, error_if_nonfinite: bool = False, _foreach: Any = None, **_: Any) -> bool:
    """Tell whether it is the usual norm that is asked for, without an exception."""
    return float(norm_type) == 2.0 and not error_if_nonfinite


def _clip_value(original: Callable[..., Any], parameters: Any, clip_value: Any, *args: Any, **kwargs: Any) -> Any:
    bound = _tightened(clip_value)
    parameters = _listed(parameters)
    patch.quietly(_note, parameters, bound)
    return original(parameters, bound, *args, **kwargs)


def _tightened(own: Any) -> Any:
    asked = run_state.asked("clip")
    return own if asked is None else min(float(own), float(asked))


def _listed(parameters: Any) -> Any:
    return parameters if isinstance(parameters, torch.Tensor) else list(parameters)


def _note(parameters: Any, bound: Any) -> None:
    held = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    del _used[:-MOST_CLIPS]
    # Scripts hand over frozen parameters as well, which no optimizer has.
    first = next((each for each in held if each.grad is not None), None)
    if first is not None:
        _used.append((float(bound), id(first)))
    if run_state.asked("clip") is not None:
        _clipped.update(map(id, held))


def wanted(optimizer: Any) -> bool:
    """Tell whether this optimizer's gradients are still to be clipped before its update."""
    return run_state.asked("clip") is not None and not any(id(each) in _clipped for each in _parameters(optimizer))


def clip(optimizer: Any) -> None:
    """Clip the gradients of one optimizer to what is asked, unless the script has done so."""
    if wanted(optimizer):
        bound = float(run_state.asked("clip"))
        held = [each for each in _parameters(optimizer) if each.grad is not None]
        if held:
            run_state.publish("clipped", _clip_half(held, bound) if _any_half(held) else _own_clip(held, bound))
            _used.append((bound, id(held[0])))
    if _clipped:
        _clipped.difference_update(map(id, _parameters(optimizer)))


def _parameters(optimizer: Any) -> Iterable[Any]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _any_half(parameters: Any) -> bool:
    held = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    return any(each.grad is not None and each.grad.dtype == torch.float16 for each in held)


def _clip_half(parameters: Any, bound: float) -> Any:
    """Clip by a norm reckoned in FP32; gradients that are not finite stay as they are, for the skip to see."""
    held = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    gradients = [each.grad for each in held if each.grad is not None]
    norms = [torch.linalg.vector_norm(gradient.detach().float()) for gradient in gradients]
    total = torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]))
    factor = torch.clamp(bound / (total + 1e-6), max=1.0)
    factor = torch.where(torch.isfinite(total), factor, torch.ones_like(factor))
    for gradient in gradients:
        # The factor may be below FP16's smallest number, the product is not.
        gradient.detach().copy_(gradient.detach().float() * factor.to(gradient.device))
    return total
