"""Sets the dtype of autocast to the precision asked, or disables it; and records which dtypes were used.

All forms (torch.autocast, torch.cuda.amp.autocast, as a context or a decorator) make an object of one class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rung_inside.numerics import precision
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state

_seen: set[Any] = set()
# The dtypes of autocast on CUDA and on the CPU at the newest call of a root module; None: off.
live: list[Any] = [None, None]


def install(_torch: Any) -> None:
    cls = torch.autocast
    if run_state.asked_knob("precision") is not None:
        patch.after(cls, "__init__", _made)
    patch.around(cls, "__enter__", _entering)
    # For an autocast that was entered before, around the whole training.
    run_state.subscribe("forward", _forward)


def _made(_result: Any, context: Any, *_: Any, **__: Any) -> None:
    wanted = run_state.asked_knob("precision")
    if wanted in ("fp32", "native_fp16"):
        context._enabled = False
    elif wanted == "bf16" and context.fast_dtype == torch.float16:
        context.fast_dtype = torch.bfloat16
    elif wanted == "amp_fp16" and any(scaler.is_enabled() for scaler in run_state.scalers):
        # Without a scaler small FP16 gradients become zero; then the script's dtype is better.
        context.fast_dtype = torch.float16


def _forward(_module: Any, _args: Any, _kwargs: Any) -> None:
    live[:] = precision.live_autocasts()
    for dtype in live:
        if dtype is not None:
            _seen.add(dtype)


def _entering(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `autocast.__enter__`, which records the dtype."""

    def __enter__(context: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it is the method itself
        if getattr(context, "_enabled", False):
            _seen.add(context.fast_dtype)
        return original(context, *args, **kwargs)

    return __enter__


def take_seen_dtype() -> Any:
    """Return the dtype that autocast used since the last call; None if it was off all the time."""
    found = next(iter(_seen), None)
    _seen.clear()
    return found
