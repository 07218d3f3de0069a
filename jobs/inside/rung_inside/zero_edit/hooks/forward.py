"""Owns finding the root modules, those that the script calls itself, and what happens around each of their calls.

Every module's call is watched only until the roots cover what the optimizers train; then the root's class alone is, so
that a training step pays for one call and not for each layer. No hook is left on a module: it would be pickled with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import param_dtype

_inside = run_state.inside
_own_call = torch.nn.Module.__call__
_patched: set[type] = set()


def install(_torch: Any) -> None:
    seek()


def seek() -> None:
    """Watch every module's call until the roots are known; asked again when an optimizer is made."""
    if torch.nn.Module.__call__ is _own_call and not _covered():
        torch.nn.Module.__call__ = _seeking_call  # type: ignore[method-assign]


def _stop_seeking() -> None:
    # Somebody may have replaced it after us; then ours stays below, and passes on.
    if torch.nn.Module.__call__ is _seeking_call:
        torch.nn.Module.__call__ = _own_call  # type: ignore[method-assign]


def _seeking_call(module: Any, *args: Any, **kwargs: Any) -> Any:
    if not getattr(_inside, "root", False) and _trainable(module):
        patch.quietly(_take, module)
    return _around(_own_call, module, args, kwargs)


def _trainable(module: Any) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _take(module: Any) -> None:
    """Take a module in as a root; roots that turn out to be parts of it are none any more."""
    # A part that is called by itself, as checkpointing does in the backward pass, is still a part.
    if any(part is module for root in run_state.models for part in root.modules()):
        return
    run_state.models.add(module)
    parts = {id(part) for part in module.modules()} - {id(module)}
    for other in run_state.models:
        if id(other) in parts:
            run_state.models.remove(other)
    _patch_class(type(module))
    if _covered():
        _stop_seeking()


def _covered() -> bool:
    """Tell whether all that the optimizers train belongs to known roots."""
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

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it is the method itself
        # Looked up at the call: tracers replace Module.__call__ for a while.
        return _around(own or _next_call(cls, self), self, args, kwargs)

    cls.__call__ = __call__


def _next_call(cls: Any, module: Any) -> Callable[..., Any]:
    call = super(cls, module).__call__

    def unbound(_module: Any, *args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return unbound


def _around(call: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
    """Do the call; when it is a root's, with its inputs and outputs in the precision asked, and told of."""
    if getattr(_inside, "root", False) or module not in run_state.models:
        return call(module, *args, **kwargs)
    _inside.root = True
    if not param_dtype.asked():
        try:
            run_state.publish("forward", module, args, kwargs)
            return call(module, *args, **kwargs)
        finally:
            _inside.root = False
    try:
        args, kwargs = patch.quietly(param_dtype.enter, module, args, kwargs) or (args, kwargs)
        run_state.publish("forward", module, args, kwargs)
        with param_dtype.computing(module):
            result = call(module, *args, **kwargs)
    finally:
        _inside.root = False
    changed = patch.quietly(param_dtype.leave, result)
    return result if changed is None else changed


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Let a root module be called by ourselves: not told of, and its inputs left as they are."""
    before = getattr(_inside, "root", False)
    _inside.root = True
    try:
        yield
    finally:
        _inside.root = before
