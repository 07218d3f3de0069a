"""Reads the knobs that Rung asks for (RUNG_KNOBS), and keeps them set whatever the script loads later.

A plain `load_state_dict` brings back the old lr, base lrs, eps and growth_interval; so the knobs are set again after
every load. Needs no torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

NAMES = (
    *("lr", "clip", "growth_interval", "precision", "batch", "accumulation", "params", "skip"),
    *("constants", "fp32_modules", "matmul"),
)
# init_scale is no knob, but a script may give it.
SCRIPT_NAMES = (*NAMES, "init_scale")
PRECISIONS = ("amp_fp16", "native_fp16", "bf16", "fp32")
# GradScaler's initial value, in place of a scale that has collapsed.
FRESH_SCALE = 65536.0
# A loss scale below 1 has collapsed.
LOWEST_USEFUL_SCALE = 1.0


def knobs() -> dict[str, Any]:
    """Return the knobs asked of this attempt by name; empty if the script was started by hand."""
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


def may_change() -> bool:
    """Return whether Rung may change anything in this process: with RUNG_MODE=watch it only looks."""
    return os.environ.get("RUNG_MODE") != "watch"


def wanted(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the knobs to set: those asked, and the script's for the others. No clip means off."""
    given = {name: value for name, value in knobs().items() if value is not None or name == "clip"}
    merged = {**defaults, **given}
    unknown = sorted(set(merged) - set(SCRIPT_NAMES))
    if unknown:
        raise ValueError(f"unknown knob {unknown[0]!r}; known: {', '.join(SCRIPT_NAMES)}")
    if merged.get("precision", PRECISIONS[0]) not in PRECISIONS:
        raise ValueError(f"unknown precision {merged['precision']!r}; known: {', '.join(PRECISIONS)}")
    return merged


def after_load(thing: Any, then: Callable[[], None], before: Callable[[Any], Any] | None = None) -> None:
    """Call `then` after every `load_state_dict` of this object; `before` may change the state, or skip the load (None).

    The object gets a new class instead of an attribute, since a scheduler's state_dict is its __dict__.
    """
    cls = type(thing)

    def load_state_dict(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        state = before(state_dict) if before else state_dict
        result = None if state is None else cls.load_state_dict(self, state, *args, **kwargs)
        then()
        return result

    thing.__class__ = type(cls.__name__, (cls,), {"load_state_dict": load_state_dict, "__module__": cls.__module__})


def usable_scaler_state(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a scaler state without a collapsed scale; None for the state of a run without a scaler."""
    if not state:
        return None
    scale = state.get("scale", FRESH_SCALE)
    if LOWEST_USEFUL_SCALE <= scale < float("inf"):
        return dict(state)
    return {**state, "scale": FRESH_SCALE, "_growth_tracker": 0}


def script_eps(optimizer: Any) -> list[Any]:
    """Return the eps that the script gave each group (None if the optimizer has none)."""
    return [group.get("eps") for group in optimizer.param_groups]


def restore_eps(optimizer: Any, eps: list[Any]) -> None:
    """Put the script's eps back; that of a checkpoint may be too small for FP16."""
    for index, group in enumerate(optimizer.param_groups):
        if "eps" in group and index < len(eps) and eps[index] is not None:
            group["eps"] = eps[index]


def last_step() -> int | None:
    """Return the step that a trial ends at; None: this attempt is no trial, or it may go on."""
    text = os.environ.get("RUNG_STOP_AT", "").strip()
    return int(text) if text.isdigit() else None
