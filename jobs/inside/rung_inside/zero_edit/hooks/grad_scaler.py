"""Sets growth_interval of the loss scaler, makes its state loadable, and disables it if the precision has none.

A scaler is disabled as the script itself would do it, so that every method works as torch defines. A disabled scaler
saves the state that it would have used, so that any later run can load it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from rung_inside.contract import asked_knobs
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.hooks import optimizer_step
from rung_inside.zero_edit.knobs.lr_factor import script_lr

WITHOUT_SCALER = ("fp32", "native_fp16", "bf16")
_rehearsal = run_state.Rehearsal
_gradients = run_state.gradients
_to_call = run_state.to_call
_asked = run_state.asked
_in_progress = optimizer_step.in_progress
_plain = optimizer_step.plain
_count = run_state.count
# torch's value for an optimizer whose gradients are unscaled, once it was seen.
_unscaled_stage: list[Any] = [None]
# The scalers that Rung disabled, with the state that each would have.
_disabled: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def install(torch: Any) -> None:
    cls = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    patch.after(cls, "__init__", _on_made)
    patch.wrap(cls, "load_state_dict", _load)
    patch.wrap(cls, "state_dict", _state)
    patch.around(cls, "unscale_", _unscaling)
    patch.around(cls, "step", _counting)


def _on_made(_result: Any, scaler: Any, *_: Any, **__: Any) -> None:
    run_state.scalers.add(scaler)
    if scaler.is_enabled() and run_state.asked_knob("precision") in WITHOUT_SCALER:
        _disabled[scaler] = {
            "scale": scaler._init_scale,
            "growth_factor": scaler._growth_factor,
            "backoff_factor": scaler._backoff_factor,
            "growth_interval": scaler._growth_interval,
            "_growth_tracker": 0,
        }
        scaler._enabled = False
    _set_growth_interval(scaler)


def _set_growth_interval(scaler: Any) -> None:
    interval = run_state.asked_knob("growth_interval")
    if interval is not None and scaler.is_enabled():
        scaler.set_growth_interval(int(interval))


def _load(original: Callable[..., Any], scaler: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
    if scaler in _disabled:
        if state_dict:
            _disabled[scaler] = dict(state_dict)
        return None
    may_change = scaler.is_enabled() and asked_knobs.may_change()
    state = patch.quietly(asked_knobs.usable_scaler_state, state_dict) if may_change else state_dict
    # An empty state is from a run without a scaler: the fresh state is right.
    result = original(scaler, state, *args, **kwargs) if state is not None else None
    patch.quietly(_set_growth_interval, scaler)
    return result


def _state(original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
    return dict(_disabled[scaler]) if scaler in _disabled else original(scaler, *args, **kwargs)


def _unscaling(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `GradScaler.unscale_`, after which the norm of the gradients no longer depends on the scale."""

    def unscale_(scaler: Any, optimizer: Any) -> Any:
        result = original(scaler, optimizer)
        if scaler._enabled and not _rehearsal.is_on:
            _gradients.are_unscaled = True
            if _in_progress:
                patch.quietly(optimizer_step.on_unscaled, optimizer)
        return result

    return unscale_


def _counting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `GradScaler.step`, which counts one update even if the scaler skips it."""

    def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if (
            # One update more of the same optimizer, without knobs, after the script has unscaled: the usual one.
            _count.only() is not optimizer
            or _asked
            or args
            or kwargs
            or not scaler._enabled
            or scaler._per_optimizer_states[id(optimizer)]["stage"] is not _unscaled_stage[0]
            or not script_lr
            or _rehearsal.is_on
            or getattr(optimizer, "_step_supports_amp_scaling", False)
        ):
            return _step(original, scaler, optimizer, args, kwargs)
        # As `_step`, but without its calls.
        _count.updates += 1
        _plain.optimizer, _plain.skipped = optimizer, True
        try:
            try:
                _to_call["before_update"](optimizer)
            except Exception as error:
                patch.note_error(_to_call["before_update"], error)
            return original(scaler, optimizer)
        finally:
            _plain.optimizer = None
            try:
                _to_call["updated"](optimizer, _plain.skipped)
            except Exception as error:
                patch.note_error(_to_call["updated"], error)

    return step


def _step(original: Callable[..., Any], scaler: Any, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Step any scaler: disabled, in a rehearsal, with knobs, of optimizers that take turns, or before it unscales."""
    if not scaler._enabled or _rehearsal.is_on:
        return original(scaler, optimizer, *args, **kwargs)
    update = patch.quietly(optimizer_step.begin_update, optimizer)
    if update is None:
        return original(scaler, optimizer, *args, **kwargs)
    unscales_itself = getattr(optimizer, "_step_supports_amp_scaling", False)
    try:
        if _is_unscaled(scaler._per_optimizer_states[id(optimizer)]["stage"]):
            update.prepare()
        elif unscales_itself:
            # It unscales in its own kernel, too late to clip.
            if update.wants_clip():
                scaler.unscale_(optimizer)
            else:
                update.prepare()
        return original(scaler, optimizer, *args, **kwargs)
    finally:
        if unscales_itself:
            update.skipped = None
        update.end()


def _is_unscaled(stage: Any) -> bool:
    if stage is _unscaled_stage[0]:
        return True
    # The name of an enum's value is slow to read.
    if str(getattr(stage, "name", stage)) != "UNSCALED":
        return False
    _unscaled_stage[0] = stage
    return True
