"""Reads the knobs from the live objects after an update, and reports them if they changed."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from rung_inside.contract import records
from rung_inside.numerics import precision, tf32
from rung_inside.patching import on_exit
from rung_inside.places import fp16_places
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import autocast, grad_clip, lr_factor, param_dtype

# The updates after which they are read: the first ones, later every so many. Later changes are rare, and reading costs
# more than the other work of an update.
FIRST_READ = 64
EVERY_READ = 64
# The name of the precision for each optimizer, autocast dtype and scaler.
_read: dict[Any, str] = {}
_first_optimizer: list[weakref.ref[Any]] = []
# Whether an update has really been made: a scaler often skips the first ones.
_has_updated: list[bool] = []


# Knobs that only frameworks have: batch, accumulation.
_framework_knobs: dict[str, Any] = {}


def set_framework_knob(name: str, value: Any) -> None:
    """Record the value of a knob that only the framework has."""
    _framework_knobs[name] = value


def install(_torch: Any) -> None:
    on_exit.on_end(_report_at_end)


def report(optimizer: Any, skipped: bool | None) -> None:
    """Report the knobs of the first optimizer; others, such as a GAN's, may be clipped differently."""
    first = _first_optimizer[0]() if _first_optimizer else None
    if first is None:
        _first_optimizer[:] = [weakref.ref(optimizer)]
    if first in (None, optimizer):
        if skipped is not True or not _waits_for_an_update():
            _has_updated[:] = [True]
        records.report_knobs(read_knobs(optimizer) if _has_updated else _before_an_update(optimizer))


def _waits_for_an_update() -> bool:
    """Return whether a knob is asked that takes effect only when an update is made."""
    return run_state.asked_knob("lr") is not None or run_state.asked_knob("clip") is not None


def _report_at_end() -> None:
    """Report what is known of a script that failed before its first update."""
    optimizer = next(iter(run_state.optimizers), None)
    if _first_optimizer or optimizer is None or not run_state.models:
        return
    # Once: the end comes after a failure too.
    _first_optimizer[:] = [weakref.ref(optimizer)]
    records.report_knobs(_before_an_update(optimizer))


def _before_an_update(optimizer: Any) -> dict[str, Any]:
    """Return the values in force that no update is needed for: an asked lr and a clip are set while one is made."""
    known = read_knobs(optimizer)
    del known["clip"]
    if run_state.asked_knob("lr") is not None:
        del known["lr"]
    return known


def read_knobs(optimizer: Any) -> dict[str, Any]:
    """Return the values in force; batch and accumulation only if a framework has them."""
    scaler = run_state.live_scaler()
    return {
        "lr": lr_factor.effective_lr(),
        "clip": grad_clip.take_used_bound(optimizer),
        "growth_interval": scaler.get_growth_interval() if scaler is not None else None,
        "precision": _precision(optimizer, autocast.take_seen_dtype(), scaler is not None),
        "params": _params(optimizer) if run_state.asked_knob("params") is not None else None,
        "skip": run_state.asked_knob("skip"),
        **fp16_places.effective(),
        **tf32.effective(),
        **_framework_knobs,
    }


def _precision(optimizer: Any, autocast: Any, scaled: bool) -> str:
    """Return the name of the precision in force."""
    key = (id(optimizer), autocast, scaled)
    if key not in _read:
        dtypes = trained = _trained_dtypes(optimizer)
        if torch.float16 in trained and autocast is None and not scaled:
            # Batch norms stay FP32 in native FP16.
            dtypes = {torch.float16}
        _read[key] = precision.name_precision(dtypes, trained, autocast, scaled)
    return _read[key]


def _trained_dtypes(optimizer: Any) -> set[Any]:
    parameters = (each for group in optimizer.param_groups for each in group["params"])
    return {each.dtype for each in parameters if each.is_floating_point()}


def _params(optimizer: Any) -> str:
    return "fp16" if _trained_dtypes(optimizer) & set(param_dtype.HALF_DTYPES) else "fp32"
