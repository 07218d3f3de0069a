"""Owns the knobs inside the job: what was asked (RUNG_KNOBS), and keeping it true whatever the script loads later.

A plain `load_state_dict` brings back the old lr, base lrs, eps and growth_interval; so every load on an object held
here is followed by the knobs again. Needs no torch of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

NAMES = ("lr", "clip", "growth_interval", "precision", "batch", "accumulation", "params", "skip")
# What a script may say of its own that is no knob.
OWN_NAMES = (*NAMES, "init_scale")
PRECISIONS = ("amp_fp16", "native_fp16", "bf16", "fp32")
# GradScaler's own initial value, for a scale that is of no use.
FRESH_SCALE = 65536.0
# A loss scale below 1 is a collapse, not a setting to go on with.
LOWEST_USEFUL_SCALE = 1.0


def asked() -> dict[str, Any]:
    """Return the knobs asked of this attempt by name; empty when the script was started by hand."""
    text = os.environ.get("RUNG_KNOBS", "").strip()
    if not text:
        return {}
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ValueError(f"RUNG_KNOBS is not JSON ({error}): {text[:80]!r}") from None
    if not isinstance(values, dict):
        raise ValueError(f"RUNG_KNOBS is not a JSON object: {text[:80]!r}")
    return {name: values[name] for name in NAMES if name in values}


def wanted(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the knobs to make true: those asked, and the script's own where nothing is asked. No clip means off."""
    given = {name: value for name, value in asked().items() if value is not None or name == "clip"}
    merged = {**defaults, **given}
    unknown = sorted(set(merged) - set(OWN_NAMES))
    if unknown:
        raise ValueError(f"unknown knob {unknown[0]!r}; known: {', '.join(OWN_NAMES)}")
    if merged.get("precision", PRECISIONS[0]) not in PRECISIONS:
        raise ValueError(f"unknown precision {merged['precision']!r}; known: {', '.join(PRECISIONS)}")
    return merged


def after_load(thing: Any, then: Callable[[], None], before: Callable[[Any], Any] | None = None) -> None:
    """Follow every `load_state_dict` of this one object by `then`; `before` may change or (None) refuse what is loaded.

    The object gets a class of its own rather than an attribute: a scheduler's state_dict is its __dict__.
    """
    cls = type(thing)

    def load_state_dict(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        state = before(state_dict) if before else state_dict
        result = None if state is None else cls.load_state_dict(self, state, *args, **kwargs)
        then()
        return result

    thing.__class__ = type(cls.__name__, (cls,), {"load_state_dict": load_state_dict, "__module__": cls.__module__})


def usable_scaler_state(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a scaler state that can be loaded: None for that of a run without a scaler, no collapsed scale."""
    if not state:
        return None
    scale = state.get("scale", FRESH_SCALE)
    if LOWEST_USEFUL_SCALE <= scale < float("inf"):
        return dict(state)
    return {**state, "scale": FRESH_SCALE, "_growth_tracker": 0}


def own_eps(optimizer: Any) -> list[Any]:
    """Return each group's eps as the script built it (None where the optimizer has none)."""
    return [group.get("eps") for group in optimizer.param_groups]


def restore_eps(optimizer: Any, eps: list[Any]) -> None:
    """Put the script's own eps back; a checkpoint's may be one that FP16 does not survive."""
    for index, group in enumerate(optimizer.param_groups):
        if "eps" in group and index < len(eps) and eps[index] is not None:
            group["eps"] = eps[index]
