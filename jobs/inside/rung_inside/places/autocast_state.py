"""Reads and sets the state of autocast, and tells what the script's own autocasts ask for.

The state is set directly and not by a further context, because it must change in the middle of a context of the script.
When that context ends, it puts back what was before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from rung_inside.numerics.precision import live_autocast
from rung_inside.patching import patch

_thread = threading.local()
# Called with each context that is entered, and again when it ends; True: it must not switch FP16 on.
_on_enter: list[Callable[[Any], bool]] = []
_on_exit: list[Callable[[Any], None]] = []


def install() -> None:
    patch.wrap(torch.autocast, "__enter__", _enter)
    patch.wrap(torch.autocast, "__exit__", _exit)


def subscribe(on_enter: Callable[[Any], bool], on_exit: Callable[[Any], None] | None = None) -> None:
    """Ask `on_enter` whether a context may switch FP16 on."""
    if on_enter not in _on_enter:
        _on_enter.append(on_enter)
        _on_exit.extend([on_exit] if on_exit is not None else [])


def set_live(device_type: str, dtype: Any) -> None:
    """Switch autocast to this dtype; None: off."""
    enabled = dtype is not None
    if hasattr(torch, "set_autocast_dtype"):
        torch.set_autocast_enabled(device_type, enabled)
        if enabled:
            torch.set_autocast_dtype(device_type, dtype)
    elif device_type == "cpu":
        torch.set_autocast_cpu_enabled(enabled)
        if enabled:
            torch.set_autocast_cpu_dtype(dtype)
    else:
        torch.set_autocast_enabled(enabled)
        if enabled:
            torch.set_autocast_gpu_dtype(dtype)


def switch(device_type: str, dtype: Any) -> Any:
    """Set autocast, and return what to set it to afterwards."""
    before = live_autocast(device_type)
    if before != dtype:
        set_live(device_type, dtype)
    return before


def asked_by_script(device_type: str) -> Any:
    """Return the dtype that the innermost autocast of the script asks for; None: off."""
    for context in reversed(_entered()):
        if context.device == device_type:
            return dtype_of(context)
    return None


def dtype_of(context: Any) -> Any:
    return context.fast_dtype if context._enabled else None


def _entered() -> list[Any]:
    if not hasattr(_thread, "entered"):
        _thread.entered = []
    return _thread.entered  # type: ignore[no-any-return]


def _enter(original: Callable[..., Any], context: Any) -> Any:
    _entered().append(context)
    answers = [patch.quietly(ask, context) for ask in _on_enter]
    if not any(answers) or dtype_of(context) != torch.float16:
        return original(context)
    context._enabled = False
    try:
        return original(context)
    finally:
        context._enabled = True


def _exit(original: Callable[..., Any], context: Any, *args: Any) -> Any:
    held = _entered()
    if context in held:
        # The innermost of those that are the same object, as a decorator makes them.
        del held[len(held) - 1 - held[::-1].index(context)]
    for tell in _on_exit:
        patch.quietly(tell, context)
    return original(context, *args)
