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
# The kind of devices, such as "cuda", that the script enters autocasts for; None: none yet, or several kinds.
_only_kind: list[Any] = [None]
_kinds: set[str] = set()
# The dtypes of autocast on CUDA and on the CPU at the newest call of a root module; None: off.
OFF = None, None
live: list[tuple[Any, Any]] = [OFF]
# The kinds that are looked for.
KINDS = ("cuda", "cpu")
_is_on: Any = torch.is_autocast_enabled
# The same for devices of any kind, which takes a third of the time.
_is_any_on: Any = getattr(torch._C, "_is_any_autocast_enabled", None) or (lambda: True)
# torch 2.4 has one function for all kinds of devices.
_dtype_of: Any = getattr(torch, "get_autocast_dtype", None)


def install(_torch: Any) -> None:
    cls = torch.autocast
    if run_state.asked_knob("precision") is not None:
        patch.after(cls, "__init__", _made)
    patch.around(cls, "__enter__", _entering)


def _made(_result: Any, context: Any, *_: Any, **__: Any) -> None:
    wanted = run_state.asked_knob("precision")
    if wanted in ("fp32", "native_fp16"):
        context._enabled = False
    elif wanted == "bf16" and context.fast_dtype == torch.float16:
        context.fast_dtype = torch.bfloat16
    elif wanted == "amp_fp16" and any(scaler.is_enabled() for scaler in run_state.scalers):
        # Without a scaler small FP16 gradients become zero; then the script's dtype is better.
        context.fast_dtype = torch.float16


def read_live() -> None:
    """Record the dtypes in force: an autocast may have been entered before, around the whole training."""
    kind = _only_kind[0]
    if not _is_any_on():
        live[0] = OFF
        return
    if kind is not None and _dtype_of is not None:
        # Then it is this kind that is on.
        dtype = _dtype_of(kind)
        live[0] = (dtype, None) if kind == "cuda" else (None, dtype)
        _seen.add(dtype)
        return
    if _dtype_of is None:
        on_gpu, on_cpu = precision.live_autocast("cuda"), precision.live_autocast("cpu")
    else:
        on_gpu = _dtype_of("cuda") if _is_on("cuda") else None
        on_cpu = _dtype_of("cpu") if _is_on("cpu") else None
    live[0] = on_gpu, on_cpu
    if on_gpu is not None:
        _seen.add(on_gpu)
    if on_cpu is not None:
        _seen.add(on_cpu)


def _add_kind(kind: str) -> None:
    _kinds.add(kind)
    _only_kind[0] = kind if _kinds == {kind} and kind in KINDS else None


def _entering(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `autocast.__enter__`, which records the dtype."""

    def __enter__(context: Any) -> Any:  # noqa: N807 - it is the method itself
        if context._enabled:
            _seen.add(context.fast_dtype)
            if context.device != _only_kind[0]:
                _add_kind(context.device)
        return original(context)

    return __enter__


def take_seen_dtype() -> Any:
    """Return the dtype that autocast used since the last call; None if it was off all the time."""
    found = next(iter(_seen), None)
    _seen.clear()
    return found
