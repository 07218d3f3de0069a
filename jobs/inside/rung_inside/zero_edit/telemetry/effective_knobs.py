"""Owns what is in force: reads the knobs from the live objects after every update, and says them when they change."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from rung_inside.contract import records
from rung_inside.patching import on_exit
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import autocast, grad_clip, lr_factor, param_dtype

# What changes later changes seldom, and reading it costs more than the rest of an update.
FIRST = 64
EVERY = 16
# The precision as last read, and what it was read from.
_read: dict[Any, str] = {}
_leading: list[weakref.ref[Any]] = []


# Knobs that a framework has and plain torch has not: batch, accumulation.
_of_frameworks: dict[str, Any] = {}


def tell(name: str, value: Any) -> None:
    """Take what a framework says of a knob of its own."""
    _of_frameworks[name] = value


def install(_torch: Any) -> None:
    run_state.on("updated", _say)
    on_exit.on_end(_say_at_last)


def _say(optimizer: Any, _skipped: Any) -> None:
    """Speak for the first optimizer: others beside it, such as a GAN's, may be clipped or not as they like."""
    if run_state.updates() > FIRST and run_state.updates() % EVERY:
        return
    leading = _leading[0]() if _leading else None
    if leading is None:
        _leading[:] = [weakref.ref(optimizer)]
    if leading in (None, optimizer):
        records.say_knobs(knobs(optimizer))


def _say_at_last() -> None:
    """Speak for a script that failed before its first update: of what no update is needed to know."""
    optimizer = next(iter(run_state.optimizers), None)
    if _leading or optimizer is None or not run_state.models:
        return
    # Once: a failure is followed by the end.
    _leading[:] = [weakref.ref(optimizer)]
    known = knobs(optimizer)
    del known["clip"]
    if run_state.asked("lr") is not None:
        del known["lr"]
    records.say_knobs(known)


def knobs(optimizer: Any) -> dict[str, Any]:
    """Return the values in force; batch and accumulation only where a framework has them."""
    scaler = next((each for each in run_state.scalers if each.is_enabled()), None)
    return {
        "lr": lr_factor.in_force(),
        "clip": grad_clip.used(optimizer),
        "growth_interval": scaler.get_growth_interval() if scaler is not None else None,
        "precision": _precision(optimizer, autocast.seen(), scaler is not None),
        "params": _params(optimizer) if run_state.asked("params") is not None else None,
        "skip": run_state.asked("skip"),
        **_of_frameworks,
    }


def _precision(optimizer: Any, autocast: Any, scaled: bool) -> str:
    """Name the precision that the live objects amount to; a combination that is none of ours is spelled out."""
    key = (id(optimizer), autocast, scaled)
    if key not in _read:
        _read[key] = _named(_trained_dtypes(optimizer), autocast, scaled)
    return _read[key]


def _named(trained: set[Any], autocast: Any, scaled: bool) -> str:
    found: dict[Any, str] = {
        (torch.float16, None, False): "native_fp16",
        (torch.float32, None, False): "fp32",
        (torch.float32, torch.bfloat16, False): "bf16",
        (torch.float32, torch.float16, True): "amp_fp16",
    }
    main = torch.float16 if torch.float16 in trained and autocast is None else None
    dtype = main or (next(iter(trained)) if len(trained) == 1 else None)
    named = found.get((dtype, autocast, scaled))
    return named or _spelled_out(trained, autocast, scaled)


def _spelled_out(trained: set[Any], autocast: Any, scaled: bool) -> str:
    parts = ["+".join(sorted(str(dtype).replace("torch.", "") for dtype in trained)) or "no", "parameters"]
    parts.append(f"autocast_{str(autocast).replace('torch.', '')}" if autocast else "no_autocast")
    parts.append("scaler" if scaled else "no_scaler")
    return "_".join(parts)


def _trained_dtypes(optimizer: Any) -> set[Any]:
    parameters = (each for group in optimizer.param_groups for each in group["params"])
    return {each.dtype for each in parameters if each.is_floating_point()}


def _params(optimizer: Any) -> str:
    return "fp16" if _trained_dtypes(optimizer) & set(param_dtype.SIXTEEN) else "fp32"
