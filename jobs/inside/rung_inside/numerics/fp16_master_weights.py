"""FP16 weights that train as well as FP32 ones: during a step the optimizer sees FP32 shadows of them.

A weight is its FP16 value plus an FP16 residual, together about 22 bits. The optimizer's state is FP32. Outside a step
the groups of the optimizer hold the model's own parameters, as every script expects.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

# The residual is at most half a unit in the last place of an FP16 value, 16 for the largest. Times 2048 (2^11, the
# digits of FP16) it still fits, and the residuals of small weights are not lost to subnormals.
RESIDUAL_SCALE = 2048.0


class _Master:
    """The part of a value that its FP16 weight cannot hold. It is valid until somebody else writes the weight."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weakref.ref(weight)
        self.residual = torch.zeros_like(weight, requires_grad=False)
        self.version = -1
        self.fp32_shadow = torch.nn.Parameter(torch.empty(0, dtype=torch.float32, device=weight.device))

    def fits(self, weight: torch.Tensor) -> bool:
        same = self.weight() is weight
        return same and self.residual.shape == weight.shape and self.residual.device == weight.device


_masters: dict[int, _Master] = {}


def _master_of(weight: torch.Tensor) -> _Master:
    found = _masters.get(id(weight))
    if found is None or not found.fits(weight):
        found = _masters[id(weight)] = _Master(weight)
    return found


def master(weight: torch.Tensor) -> torch.Tensor:
    """Return the FP32 value of a weight and its residual; a weight that somebody else has written has none."""
    found = _masters.get(id(weight))
    value = weight.detach().float()
    if found is None or found.version != weight._version or not found.fits(weight):
        return value
    return value + found.residual.float() / RESIDUAL_SCALE


def set_master(weight: torch.Tensor, value: torch.Tensor) -> None:
    """Store an FP32 value as weight and residual."""
    held = _master_of(weight)
    with torch.no_grad():
        weight.copy_(value)
        held.residual.copy_((value.to(weight.device).float() - weight.float()) * RESIDUAL_SCALE)
    held.version = weight._version


class Fp32Shadows:
    """Puts FP32 shadows in the place of the FP16 weights of one optimizer, and takes them out again."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._placed: list[tuple[Any, Any]] = []

    def enter(self) -> None:
        """Place the shadows with their gradients, unless they are in place."""
        if self._placed:
            return
        for group in self._optimizer.param_groups:
            # In place: some optimizers keep the list itself.
            for index, weight in enumerate(group["params"]):
                if weight.dtype == torch.float16:
                    group["params"][index] = self._shadow(weight)

    def _shadow(self, weight: Any) -> Any:
        shadow = _master_of(weight).fp32_shadow
        shadow.data = master(weight)
        shadow.grad = None if weight.grad is None else weight.grad.detach().float()
        self._move_state(weight, shadow)
        self._placed.append((weight, shadow))
        return shadow

    def _move_state(self, old: Any, new: Any) -> None:
        state = self._optimizer.state
        if old in state:
            held = state.pop(old)
            state[new] = {name: _float(value) for name, value in held.items()} if isinstance(held, dict) else held

    def finite(self) -> bool:
        """Return whether all gradients of the shadows are finite; waits for each device once."""
        gradients = [shadow.grad for _, shadow in self._placed if shadow.grad is not None]
        largest = [gradient.abs().max() for gradient in gradients if gradient.numel()]
        return not largest or bool(torch.isfinite(torch.stack([each.to(largest[0].device) for each in largest])).all())

    def leave(self, *, write: bool) -> None:
        """Put the weights back; `write`: with the values that the shadows have now."""
        originals = {id(shadow): weight for weight, shadow in self._placed}
        for group in self._optimizer.param_groups:
            group["params"][:] = [originals.get(id(each), each) for each in group["params"]]
        for weight, shadow in self._placed:
            self._move_state(shadow, weight)
            if write and shadow.grad is not None:
                set_master(weight, shadow.data)
            shadow.grad = None
            shadow.data = torch.empty(0, dtype=torch.float32, device=weight.device)
        self._placed = []


def _float(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype == torch.float16
    return value.float() if half else value
