"""Makes an optimizer train FP16 weights through FP32 shadows, and keeps their full values across loads.

Plain FP16 fails twice: Adam's second moments and its eps round to zero (NaN at step 1), and a weight of 1.0 ignores
updates below 4.9e-4.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from rung_inside.numerics.fp16_master_weights import Fp32Shadows, master, set_master


class NativeFp16:
    """Wraps the methods of one model and its optimizer that step and load."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.shadows = Fp32Shadows(optimizer)
        self._model, self._optimizer = model, optimizer
        _wrap(optimizer, "step", self._step)
        _wrap(optimizer, "load_state_dict", self._load_optimizer)
        _wrap(model, "load_state_dict", self._load_model)

    def _step(self, step: Callable[..., Any], closure: Any = None) -> Any:
        """Do one optimizer step on the shadows, or none if a gradient is not finite."""
        loss = closure() if closure is not None else None
        stepped = False
        self.shadows.enter()
        try:
            if self.shadows.finite():
                step()
                stepped = True
        finally:
            self.shadows.leave(write=stepped)
        return loss

    def _load_optimizer(self, load: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Load while the shadows are in place, since torch casts the state to the dtype of the parameters."""
        self.shadows.enter()
        try:
            return load(*args, **kwargs)
        finally:
            self.shadows.leave(write=False)

    def _load_model(self, load: Callable[..., Any], state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        result = load(state_dict, *args, **kwargs)
        trained = {id(weight) for group in self._optimizer.param_groups for weight in group["params"]}
        for name, weight in self._model.named_parameters():
            if name in state_dict and id(weight) in trained and weight.dtype == torch.float16:
                set_master(weight, state_dict[name])
        return result


def master_state(model: torch.nn.Module) -> dict[str, Any]:
    """Return the model's state with every half-precision tensor as FP32, so that any precision can load it."""
    return {name: _full(value) for name, value in model.state_dict(keep_vars=True).items()}


def _full(value: torch.Tensor) -> torch.Tensor:
    if value.dtype == torch.float16:
        return master(value)
    return value.detach().float() if value.dtype == torch.bfloat16 else value.detach()


def _wrap(thing: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace one method of one object by `around`, which gets the original as its first argument."""
    original = getattr(thing, name)

    @functools.wraps(original)
    def method(_self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    # A bound method, not a function: torch's schedulers bind `step` again.
    object.__setattr__(thing, name, types.MethodType(method, thing))
