"""Owns the update: what happens around `step()` of every optimizer, called by the script or by a scaler.

The asked lr is a factor on the script's own, there only while the optimizer steps: no schedule, checkpoint or print of
the script ever sees it, so nothing can undo it or save it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from rung_inside.numerics.fp16_master_weights import StandIns
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.hooks import forward
from rung_inside.zero_edit.knobs import grad_clip, param_dtype
from rung_inside.zero_edit.knobs.lr_factor import Factor, see_first

# The updates under way, by optimizer.
_under_way: dict[int, Update] = {}
# Which optimizers only hold another one.
_covers: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def install(_torch: Any) -> None:
    patch.after(torch.optim.Optimizer, "__init__", _made)
    patch.wrap(torch.optim.Optimizer, "load_state_dict", _load)


def _made(_result: Any, optimizer: Any, *_: Any, **__: Any) -> None:
    take_in(optimizer)
    for cls in type(optimizer).__mro__:
        if "step" in cls.__dict__ and cls is not torch.optim.Optimizer:
            patch.wrap(cls, "step", _step)


def take_in(optimizer: Any) -> None:
    """Know an optimizer from here on."""
    if not _holds_another(optimizer) and run_state.optimizers.add(optimizer):
        see_first(optimizer)
        forward.seek()


def _holds_another(optimizer: Any) -> bool:
    """Tell whether it is only a cover: the optimizer inside it does the update, and is seen doing it."""
    known = _covers.get(optimizer)
    if known is None:
        known = any(isinstance(value, torch.optim.Optimizer) for value in vars(optimizer).values())
        # One that is still being made may be a cover in a moment.
        if getattr(optimizer, "param_groups", None):
            _covers[optimizer] = known
    return known


def _within(optimizer: Any) -> Any:
    """Return the optimizer inside all covers."""
    if not _holds_another(optimizer):
        return optimizer
    inner = next((each for each in vars(optimizer).values() if isinstance(each, torch.optim.Optimizer)), None)
    return optimizer if inner is None else _within(inner)


class Update:
    """One update of one optimizer, from the moment its gradients are complete."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.left_out = _left_out(run_state.begin_update(optimizer))
        self.stepping = False
        self.skipped = True
        self._prepared = False

    def wants_clip(self) -> bool:
        return bool(patch.quietly(grad_clip.wanted, self.optimizer))

    def prepare(self) -> None:
        """Clip the true gradients where that is still to be done, and tell that they are final."""
        patch.quietly(grad_clip.clip, self.optimizer)
        if not self._prepared:
            self._prepared = True
            run_state.publish("before_update", self.optimizer)

    def end(self, *, known: bool = True) -> None:
        _under_way.pop(id(self.optimizer), None)
        run_state.publish("updated", self.optimizer, self.skipped if known else None)


def begin(optimizer: Any) -> Update:
    """Count an update of this optimizer, or of the one that it covers, and know it to be under way."""
    optimizer = _within(optimizer)
    if optimizer not in run_state.optimizers:
        take_in(optimizer)
    update = _under_way[id(optimizer)] = Update(optimizer)
    return update


def scaled_gradients_are_true(optimizer: Any) -> None:
    """Clip now, when the scaler unscales only in its own step."""
    update = _under_way.get(id(_within(optimizer)))
    if update is not None:
        update.prepare()


def _left_out(number: int) -> bool:
    if run_state.asked("skip") is None:
        return False
    first, _, last = str(run_state.asked("skip")).partition("-")
    return first.isdigit() and last.isdigit() and int(first) <= number <= int(last)


def _step(original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    update = _under_way.get(id(optimizer))
    if (update is not None and update.stepping) or _holds_another(optimizer):
        return original(optimizer, *args, **kwargs)
    if update is not None:
        return _do(update, original, args, kwargs)
    update = patch.quietly(begin, optimizer)
    if update is None:
        return original(optimizer, *args, **kwargs)
    try:
        if _closure(args, kwargs) is None:
            update.prepare()
        return _do(update, original, args, kwargs)
    finally:
        update.end()


def _closure(args: Any, kwargs: Any) -> Any:
    found = kwargs.get("closure", args[0] if args else None)
    return found if callable(found) else None


def _do(update: Update, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Let the optimizer step with the knobs on it, or leave this update out."""
    closure = _closure(args, kwargs)
    if update.left_out:
        # Its batch is still drawn and its loss still seen.
        return closure() if closure is not None else None
    if closure is None and run_state.asked("lr") is None and run_state.asked("precision") is None:
        return _do_plainly(update, original, args, kwargs)
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
    """Ends the optimizer's step right after its closure, in native FP16, before anything has changed."""

    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.loss = loss


def _do_plainly(update: Update, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Let the optimizer step as it is, where nothing is asked that it would have to carry."""
    update.stepping = True
    try:
        result = original(update.optimizer, *args, **kwargs)
        update.skipped = False
        return result
    finally:
        update.stepping = False


class _Step:
    """Puts lr factor and FP32 stand-ins on an optimizer, and takes them off while its closure runs."""

    def __init__(self, update: Update) -> None:
        self._update = update
        self._factor = Factor(update.optimizer)
        self._stand_ins = StandIns(update.optimizer) if run_state.asked("precision") == "native_fp16" else None

    def enter(self) -> None:
        patch.quietly(self._factor.enter)
        if self._stand_ins is not None:
            patch.quietly(self._stand_ins.enter)

    def finite(self) -> bool:
        return self._stand_ins is None or patch.quietly(self._stand_ins.finite) is not False

    def leave(self, *, write: bool) -> None:
        if self._stand_ins is not None:
            patch.quietly(self._stand_ins.leave, write=write)
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
    """Load a state without its being cast to FP16, where the precision is ours: second moments would flush to zero."""
    if not param_dtype.asked() or _holds_another(optimizer):
        return original(optimizer, *args, **kwargs)
    stand_ins = StandIns(optimizer)
    patch.quietly(stand_ins.enter)
    try:
        return original(optimizer, *args, **kwargs)
    finally:
        patch.quietly(stand_ins.leave, write=False)
