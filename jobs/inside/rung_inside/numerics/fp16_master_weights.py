"""Owns FP16 weights that train as well as FP32 ones: during a step the optimizer sees FP32 stand-ins.

A weight is its FP16 value plus an FP16 rest, together good for about 22 bits; the optimizer's state is FP32, and stays
so when it is loaded. Outside a step the optimizer's groups hold the model's own parameters, as everybody expects.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

# The rest is at most half a unit in the last place; times 2048 (2^11, the digits of FP16) it still fits.
REST_SCALE = 2048.0


class _Rest:
    """What an FP16 weight cannot hold of its value, good as long as nobody else writes the weight."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weakref.ref(weight)
        self.rest = torch.zeros_like(weight, requires_grad=False)
        self.version = -1
        self.stand_in = torch.nn.Parameter(torch.empty(0, dtype=torch.float32, device=weight.device))


_rests: dict[int, _Rest] = {}


def _rest_of(weight: torch.Tensor) -> _Rest:
    found = _rests.get(id(weight))
    fits = found is not None and found.rest.shape == weight.shape and found.rest.device == weight.device
    if found is None or found.weight() is not weight or not fits:
        found = _rests[id(weight)] = _Rest(weight)
    return found


def master(weight: torch.Tensor) -> torch.Tensor:
    """Return the FP32 value that a weight and its rest stand for; a weight written by others has no rest."""
    held = _rest_of(weight)
    value = weight.detach().float()
    return value + held.rest.float() / REST_SCALE if held.version == weight._version else value


def adopt(weight: torch.Tensor, value: torch.Tensor) -> None:
    """Store an FP32 value as weight and rest."""
    held = _rest_of(weight)
    with torch.no_grad():
        weight.copy_(value)
        held.rest.copy_((value.float() - weight.float()) * REST_SCALE)
    held.version = weight._version


class StandIns:
    """Puts FP32 stand-ins in the place of one optimizer's FP16 weights, and takes them out again."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._placed: list[tuple[Any, Any]] = []

    def enter(self) -> None:
        for group in self._optimizer.param_groups:
            # In place: some optimizers keep the list itself.
            for index, weight in enumerate(group["params"]):
                if weight.dtype == torch.float16:
                    group["params"][index] = self._stand_in(weight)

    def _stand_in(self, weight: Any) -> Any:
        stand_in = _rest_of(weight).stand_in
        stand_in.data = master(weight)
        stand_in.grad = None if weight.grad is None else weight.grad.detach().float()
        self._move_state(weight, stand_in)
        self._placed.append((weight, stand_in))
        return stand_in

    def _move_state(self, old: Any, new: Any) -> None:
        state = self._optimizer.state
        if old in state:
            held = state.pop(old)
            state[new] = {name: _float(value) for name, value in held.items()} if isinstance(held, dict) else held

    def finite(self) -> bool:
        """Tell whether every gradient of a stand-in is finite, with one look at the device."""
        gradients = [stand_in.grad for _, stand_in in self._placed if stand_in.grad is not None]
        largest = [gradient.abs().max() for gradient in gradients if gradient.numel()]
        return not largest or bool(torch.isfinite(torch.stack([each.to(largest[0].device) for each in largest])).all())

    def leave(self, *, write: bool) -> None:
        """Put the weights back, with the values that the stand-ins now have where those are to be kept."""
        originals = {id(stand_in): weight for weight, stand_in in self._placed}
        for group in self._optimizer.param_groups:
            group["params"][:] = [originals.get(id(each), each) for each in group["params"]]
        for weight, stand_in in self._placed:
            self._move_state(stand_in, weight)
            if write and stand_in.grad is not None:
                adopt(weight, stand_in.data)
            stand_in.grad = None
            stand_in.data = torch.empty(0, dtype=torch.float32, device=weight.device)
        self._placed = []


def _float(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype == torch.float16
    return value.float() if half else value
