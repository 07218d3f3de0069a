"""Finds the root modules, those that the script itself calls, and wraps each of their calls.

Every module's call is watched only until the roots hold all that the optimizers train. Then only the class of the root
is, so that a step costs one extra call and not one for each layer. A module gets no hook: it would be pickled with it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch

from rung_inside.patching import patch
from rung_inside.places import counting, fp16_places
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import autocast, param_dtype
from rung_inside.zero_edit.knobs.autocast import read_live

_in_root = run_state.in_root
_to_call = run_state.to_call
_module = torch.nn.Module
_torch_call = torch.nn.Module.__call__
_asked = run_state.asked
_places = fp16_places.asked
_patched: set[type] = set()
# The root that was called last, as a weak reference: most scripts have only one.
_newest: list[Callable[[], Any]] = [lambda: None]


def install(_torch: Any) -> None:
    watch_modules()


def watch_modules() -> None:
    """Watch every module's call until the roots are known; called again for every new optimizer."""
    if torch.nn.Module.__call__ is _torch_call and not _roots_are_known():
        torch.nn.Module.__call__ = _watching_call  # type: ignore[method-assign]


def _stop_watching() -> None:
    # Other code may have replaced it since; then ours stays below and only passes calls on.
    if torch.nn.Module.__call__ is _watching_call:
        torch.nn.Module.__call__ = _torch_call  # type: ignore[method-assign]


def _watching_call(module: Any, *args: Any, **kwargs: Any) -> Any:
    if get_ident() not in _in_root:
        if _trainable(module):
            patch.quietly(_add_root, module)
        elif next(module.parameters(), None) is not None:
            run_state.frozen.add(module)
    return _call_module(_torch_call, module, args, kwargs)


def _trainable(module: Any) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _add_root(module: Any) -> None:
    """Add a module as a root, and remove roots that are parts of it."""
    # A part may be called alone, as checkpointing does in the backward pass.
    if any(part is module for root in run_state.models for part in root.modules()):
        return
    run_state.models.add(module)
    parts = {id(part) for part in module.modules()} - {id(module)}
    for other in run_state.models:
        if id(other) in parts:
            run_state.models.remove(other)
            _newest[0] = lambda: None
    _patch_class(type(module))
    if _roots_are_known():
        _stop_watching()


def _roots_are_known() -> bool:
    """Return whether all that the optimizers train belongs to known roots."""
    trained = {
        id(each) for optimizer in run_state.optimizers for group in optimizer.param_groups for each in group["params"]
    }
    held = {id(parameter) for module in run_state.models for parameter in module.parameters()}
    return bool(trained) and trained <= held


def _patch_class(cls: Any) -> None:
    if cls in _patched or cls is torch.nn.Module:
        return
    _patched.add(cls)
    own = cls.__dict__.get("__call__")
    is_plain = next(each for each in cls.__mro__[1:] if "__call__" in each.__dict__) is _module

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it is the method itself
        # Looked up at each call: tracers replace Module.__call__ for a while. Of the type, it is a plain function.
        call = own or (_module.__call__ if is_plain and type(self) is cls else super(cls, type(self)).__call__)
        me = get_ident()
        if _newest[0]() is not self or _asked or _places or me in _in_root:
            return _call_module(call, self, args, kwargs)
        # The same root as before, without knobs: as `_call_module`, but without its calls.
        _in_root.append(me)
        try:
            try:
                read_live()
                _to_call["forward"](self, args, kwargs)
            except Exception as error:
                patch.note_error(_to_call["forward"], error)
            # With one argument, as most are, without unpacking it.
            return call(self, *args, **kwargs) if kwargs or len(args) != 1 else call(self, args[0])
        finally:
            _in_root.remove(me)

    cls.__call__ = __call__


def _publish_call(module: Any, args: Any, kwargs: Any) -> None:
    """Record the autocast in force, and publish that a root is called."""
    patch.quietly(autocast.read_live)
    run_state.publish("forward", module, args, kwargs)


def _call_module(call: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
    """Call a module; publish the call of a root, with its inputs and outputs in the precision asked."""
    me = get_ident()
    if me in _in_root:
        return call(module, *args, **kwargs)
    if _newest[0]() is not module:
        if module not in run_state.models:
            return call(module, *args, **kwargs)
        _newest[0] = weakref.ref(module)
    _in_root.append(me)
    if not ((_asked and param_dtype.is_asked()) or _places):
        try:
            _publish_call(module, args, kwargs)
            return call(module, *args, **kwargs)
        finally:
            _in_root.remove(me)
    try:
        args, kwargs = patch.quietly(param_dtype.cast_inputs, module, args, kwargs) or (args, kwargs)
        _publish_call(module, args, kwargs)
        with param_dtype.bf16_autocast(module):
            result = fp16_places.call_root(call, module, args, kwargs)
    finally:
        _in_root.remove(me)
    changed = patch.quietly(param_dtype.cast_outputs, result)
    return result if changed is None else changed


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Call root modules without publishing the call or casting its inputs."""
    me = get_ident()
    _in_root.append(me)
    try:
        with counting.paused():
            yield
    finally:
        _in_root.remove(me)
