"""Wraps `step()` of every optimizer, called by the script or by a scaler.

The asked lr is a factor on the script's lr, set only while the optimizer steps. No schedule, checkpoint or print of
the script sees it, so nothing can undo it or save it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from rung_inside.numerics.fp16_master_weights import Fp32Shadows
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.hooks import forward
from rung_inside.zero_edit.knobs import grad_clip, param_dtype
from rung_inside.zero_edit.knobs.lr_factor import LrFactor, record_made, record_step, script_lr

# The updates in progress, by optimizer.
in_progress: dict[int, Update] = {}


class _Plain:
    """The step of a scaler that is in progress, where no knob is asked: as an `Update`, but made only once."""

    optimizer: Any = None
    skipped = True


plain = _Plain()
# The optimizer of the newest update, as a weak reference: it is registered and wraps no other one.
_newest: list[Callable[[], Any]] = [lambda: None]
# The knobs that change what a step does.
_asked = run_state.asked
_rehearsal = run_state.Rehearsal
_count = run_state.count
_to_call = run_state.to_call
# Whether an optimizer only wraps another one.
_wrapper_optimizers: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def install(_torch: Any) -> None:
    patch.after(torch.optim.Optimizer, "__init__", _made)
    patch.wrap(torch.optim.Optimizer, "load_state_dict", _load)


def _made(_result: Any, optimizer: Any, *_: Any, **__: Any) -> None:
    register(optimizer)
    for cls in type(optimizer).__mro__:
        if "step" in cls.__dict__ and cls is not torch.optim.Optimizer:
            patch.around(cls, "step", _stepping)


def register(optimizer: Any) -> None:
    """Register an optimizer, unless it only wraps another one."""
    if not _is_wrapper_optimizer(optimizer) and run_state.optimizers.add(optimizer):
        record_made(optimizer)
        forward.watch_modules()


def _is_wrapper_optimizer(optimizer: Any) -> bool:
    """Return whether it only wraps another optimizer, whose update is the one that counts."""
    if _newest[0]() is optimizer:
        return False
    known = _wrapper_optimizers.get(optimizer)
    if known is None:
        known = any(isinstance(value, torch.optim.Optimizer) for value in vars(optimizer).values())
        # An optimizer that is still being made may become a wrapper.
        if getattr(optimizer, "param_groups", None):
            _wrapper_optimizers[optimizer] = known
    return known


def _innermost(optimizer: Any) -> Any:
    """Return the optimizer inside all wrapper optimizers."""
    if not _is_wrapper_optimizer(optimizer):
        return optimizer
    inner = next((each for each in vars(optimizer).values() if isinstance(each, torch.optim.Optimizer)), None)
    return optimizer if inner is None else _innermost(inner)


class Update:
    """One update of one optimizer, from the moment its gradients are complete."""

    # Set by `begin_update`. All else has its value here: a function that sets it would be one more call in each update.
    optimizer: Any = None
    left_out = False
    stepping = False
    skipped: bool | None = True
    is_prepared = False

    def wants_clip(self) -> bool:
        return bool(patch.quietly(grad_clip.is_due, self.optimizer))

    def prepare(self) -> None:
        """Clip the unscaled gradients if that is due, and publish that they are final."""
        if _asked and _asked.get("clip") is not None:
            patch.quietly(grad_clip.clip, self.optimizer)
        if not self.is_prepared:
            self.is_prepared = True
            try:
                _to_call["before_update"](self.optimizer)
            except Exception as error:
                patch.note_error(_to_call["before_update"], error)

    def end(self) -> None:
        in_progress.pop(id(self.optimizer), None)
        try:
            _to_call["updated"](self.optimizer, self.skipped)
        except Exception as error:
            patch.note_error(_to_call["updated"], error)


def begin_update(optimizer: Any) -> Update:
    """Count an update of this optimizer, or of the one that it wraps, and mark it as in progress."""
    if _newest[0]() is not optimizer:
        optimizer = _innermost(optimizer)
        if optimizer not in run_state.optimizers:
            register(optimizer)
        if optimizer in run_state.optimizers:
            _newest[0] = weakref.ref(optimizer)
    if not script_lr:
        record_step(optimizer)
    if _count.only() is optimizer:
        _count.updates += 1
    else:
        _count.begin(optimizer)
    update = in_progress[id(optimizer)] = Update()
    update.optimizer = optimizer
    if _asked:
        update.left_out = _asked.get("skip") is not None and _left_out(run_state.step())
    return update


def on_unscaled(optimizer: Any) -> None:
    """Clip now, for a scaler that unscales only in its own step."""
    update = in_progress.get(id(_innermost(optimizer))) if in_progress else None
    if update is not None:
        update.prepare()


def _left_out(number: int) -> bool:
    first, _, last = str(run_state.asked_knob("skip")).partition("-")
    return first.isdigit() and last.isdigit() and int(first) <= number <= int(last)


def _stepping(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `Optimizer.step`, which is an update, or a part of the one of a scaler or a wrapper optimizer."""

    def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if plain.optimizer is not optimizer:
            return _step(original, optimizer, *args, **kwargs)
        # The step of a scaler, without knobs.
        result = original(optimizer, *args, **kwargs) if args or kwargs else original(optimizer)
        plain.skipped = False
        return result

    return step


def _step(original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    update = in_progress.get(id(optimizer))
    if (update is not None and update.stepping) or (_newest[0]() is not optimizer and _is_wrapper_optimizer(optimizer)):
        return original(optimizer, *args, **kwargs)
    if _rehearsal.is_on:
        closure = _closure(args, kwargs)
        return closure() if closure is not None else None
    if update is not None:
        return _run_step(update, original, args, kwargs)
    update = patch.quietly(begin_update, optimizer)
    if update is None:
        return original(optimizer, *args, **kwargs)
    try:
        if not (args or kwargs) or _closure(args, kwargs) is None:
            update.prepare()
        return _run_step(update, original, args, kwargs)
    finally:
        update.end()


def _closure(args: Any, kwargs: Any) -> Any:
    found = kwargs.get("closure", args[0] if args else None)
    return found if callable(found) else None


def _run_step(update: Update, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Step the optimizer with the knobs set, or leave this update out."""
    closure = _closure(args, kwargs) if args or kwargs else None
    if update.left_out:
        # Its batch is still used up and its loss still reported.
        return closure() if closure is not None else None
    if closure is None and _asked.get("lr") is None and _asked.get("precision") is None:
        update.stepping = True
        try:
            result = original(update.optimizer, *args, **kwargs)
            update.skipped = False
            return result
        finally:
            update.stepping = False
    return _run_changed_step(update, original, args, kwargs)


def _run_changed_step(update: Update, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Step the optimizer with another lr or precision, or with a closure, around which nothing is changed."""
    closure = _closure(args, kwargs)
    step = _Step(update)
    if closure is not None:
        args, kwargs = step.around_closure(closure, args, kwargs)
    update.stepping = True
    try:
        step.enter()
        if closure is None and not step.finite():
            return None
        result = original(update.optimizer, *args, **kwargs)
        update.skipped = False
        return result
    except _NotFinite as stopped:
        return stopped.loss
    finally:
        step.leave(write=not update.skipped)
        update.stepping = False


class _NotFinite(Exception):
    """Ends the optimizer's step right after its closure in native FP16, before anything changes."""

    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.loss = loss


class _Step:
    """Sets the lr factor and FP32 shadows on an optimizer, and removes them while its closure runs."""

    def __init__(self, update: Update) -> None:
        self._update = update
        self._factor = LrFactor(update.optimizer)
        self._shadows = Fp32Shadows(update.optimizer) if run_state.asked_knob("precision") == "native_fp16" else None

    def enter(self) -> None:
        patch.quietly(self._factor.enter)
        if self._shadows is not None:
            patch.quietly(self._shadows.enter)

    def finite(self) -> bool:
        return self._shadows is None or patch.quietly(self._shadows.finite) is not False

    def leave(self, *, write: bool) -> None:
        if self._shadows is not None:
            patch.quietly(self._shadows.leave, write=write)
        patch.quietly(self._factor.leave)

    def around_closure(self, closure: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        def ours(*closure_args: Any, **closure_kwargs: Any) -> Any:
            self.leave(write=True)
            self._update.stepping = False
            try:
                loss = closure(*closure_args, **closure_kwargs)
                self._update.prepare()
            finally:
                self._update.stepping = True
                self.enter()
            if not self.finite():
                raise _NotFinite(loss)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": ours}
        return (ours, *args[1:]), kwargs


def _load(original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """Load a state without a cast to FP16, in which second moments would become zero."""
    if not param_dtype.is_asked() or _is_wrapper_optimizer(optimizer):
        return original(optimizer, *args, **kwargs)
    shadows = Fp32Shadows(optimizer)
    patch.quietly(shadows.enter)
    try:
        return original(optimizer, *args, **kwargs)
    finally:
        patch.quietly(shadows.leave, write=False)
