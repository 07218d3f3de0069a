"""Computes what comes after the model in FP32: the place `loss`.

From the end of the model's forward to the backward pass autocast to FP16 is off, also where the script enters one
there, and the outputs of the model are FP32. Another call of a model in between gets the script's autocast again.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from rung_inside.numerics.precision import live_autocast
from rung_inside.patching import patch
from rung_inside.places import autocast_state, saturation

_thread = threading.local()
_ran = [0]


def install() -> None:
    autocast_state.subscribe(_entered)
    patch.before(torch.autograd, "backward", _on_backward)


def ran() -> int:
    """Return how often the code after a model ran in FP32."""
    return _ran[0]


def enter_model(device_type: str) -> None:
    """Give the model the autocast that the script asks for."""
    if getattr(_thread, "is_after_model", False):
        _thread.is_after_model = False
        if live_autocast(device_type) is None:
            autocast_state.set_live(device_type, autocast_state.asked_by_script(device_type))


def leave_model(device_type: str, result: Any) -> Any:
    """Switch FP16 off for the code that follows, and return the outputs as FP32."""
    live = live_autocast(device_type)
    if live == torch.bfloat16:
        return result
    if live == torch.float16:
        autocast_state.set_live(device_type, None)
    _thread.is_after_model = True
    if torch.is_grad_enabled():
        _ran[0] += 1
    return saturation.widened(result)


def _entered(_context: Any) -> bool:
    return getattr(_thread, "is_after_model", False)


def _on_backward(*_: Any, **__: Any) -> None:
    _thread.is_after_model = False
