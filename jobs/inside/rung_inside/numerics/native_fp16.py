"""Owns an optimizer that survives native FP16: FP16 weights, FP32 optimizer state, Kahan compensation.

Plain FP16 fails twice: Adam's second moments flush to zero and its eps rounds to zero (NaN at step 1), and a weight of
1.0 ignores updates below 4.9e-4. Here the optimizer works on FP32 shadows, which exist only during a step; between
steps a weight is its FP16 value plus an FP16 rest, together good for about 22 bits.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

# The rest is at most half a unit in the last place of an FP16 value, 16 for the largest; times 2048 (2^11, the digits
# of FP16) it still fits, and small weights do not lose theirs to subnormals.
REST_SCALE = 2048.0


class Compensated:
    """Stands between one optimizer and the FP16 weights it trains."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._rests: dict[torch.Tensor, torch.Tensor] = {}
        self._shadows: dict[torch.Tensor, torch.nn.Parameter] = {}
        self._gathered = False
        for group in optimizer.param_groups:
            group["params"] = [self._shadow(optimizer, weight) for weight in group["params"]]
        _wrap(optimizer, "step", self._step)
        _wrap(optimizer, "zero_grad", self._zero_grad)

    def _shadow(self, optimizer: torch.optim.Optimizer, weight: torch.Tensor) -> torch.Tensor:
        if weight.dtype != torch.float16:
            return weight
        shadow = torch.nn.Parameter(torch.empty(0, dtype=torch.float32, device=weight.device))
        self._shadows[weight] = shadow
        self._rests[weight] = torch.zeros_like(weight, requires_grad=False)
        if weight in optimizer.state:
            state = optimizer.state.pop(weight)
            optimizer.state[shadow] = {name: _float(value) for name, value in state.items()}
        return shadow

    def gather(self) -> None:
        """Bring the FP32 shadows and their gradients into being for one step."""
        for weight, shadow in self._shadows.items():
            if weight.grad is not None:
                shadow.data = self.master(weight)
                shadow.grad = weight.grad.float()
        self._gathered = True

    def master(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the FP32 value that a weight and its rest stand for."""
        value = weight.detach().float()
        return value + self._rests[weight].float() / REST_SCALE if weight in self._rests else value

    def adopt(self, weight: torch.Tensor, value: torch.Tensor) -> None:
        """Store an FP32 value as weight and rest."""
        with torch.no_grad():
            weight.copy_(value)
            self._rests[weight].copy_((value.to(weight.device).float() - weight.float()) * REST_SCALE)

    def _step(self, step: Callable[..., Any], closure: Any = None) -> Any:
        """Do one optimizer step on the shadows, or none when a gradient is not finite."""
        loss = closure() if closure is not None else None
        if not self._gathered:
            self.gather()
        live = [(weight, shadow) for weight, shadow in self._shadows.items() if shadow.grad is not None]
        if all(_finite(shadow.grad) for _, shadow in live):
            step()
            for weight, shadow in live:
                self.adopt(weight, shadow.data)
        self._release()
        return loss

    def _release(self) -> None:
        for shadow in self._shadows.values():
            shadow.grad = None
            shadow.data = torch.empty(0, dtype=torch.float32, device=shadow.device)
        self._gathered = False

    def _zero_grad(self, zero_grad: Callable[..., Any], set_to_none: bool = True) -> None:
        zero_grad()
        self._release()
        for weight in self._shadows:
            if set_to_none or weight.grad is None:
                weight.grad = None
            else:
                weight.grad.zero_()


def master_state(model: torch.nn.Module, compensated: Compensated | None) -> dict[str, Any]:
    """Return the model's state with every half-precision tensor as FP32, rests included, ready for any precision."""
    tensors: Mapping[str, Any] = model.state_dict(keep_vars=True)
    return {
        name: compensated.master(value) if compensated and value.dtype == torch.float16 else _float(value).detach()
        for name, value in tensors.items()
    }


def follow_loads(model: torch.nn.Module, compensated: Compensated) -> None:
    """Make `model.load_state_dict` set the rests too; those of the old weights would be wrong for the new ones."""

    def load(load_state_dict: Callable[..., Any], state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        result = load_state_dict(state_dict, *args, **kwargs)
        for name, weight in model.named_parameters():
            if name in state_dict and weight in compensated._rests:
                compensated.adopt(weight, state_dict[name])
        return result

    _wrap(model, "load_state_dict", load)


def _float(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if half else value


def _finite(tensor: torch.Tensor | None) -> bool:
    return tensor is None or bool(torch.isfinite(tensor).all())


def _wrap(thing: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace one method of one object by `around`, which is given the original first."""
    original = getattr(thing, name)

    @functools.wraps(original)
    def method(_self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    # A bound method, not a function: torch's schedulers bind what they find in `step` once more.
    object.__setattr__(thing, name, types.MethodType(method, thing))
