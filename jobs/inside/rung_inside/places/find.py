"""Finds the modules that the places name, and says why one cannot be a place.

A name is one of `named_modules()` of the model, without the wrappers around it. The model itself goes by the name of
its class, as in the records of a replay. `NAME` is the module's own code, `NAME.*` the module with all that is in it.
"""

from __future__ import annotations

from typing import Any

import torch

LOSS = "loss"
WHOLE = ".*"


def unwrapped(module: Any) -> Any:
    """Return the module without wrappers that compile it or communicate with other ranks."""
    for _ in range(8):
        inner = getattr(module, "_orig_mod", None)
        if inner is None and type(module).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = module.module
        if inner is None:
            return module
        module = inner
    return module


def find_module(root: Any, name: str) -> Any:
    """Return the module of this name in a model; None if there is none."""
    model, name = unwrapped(root), name[: -len(WHOLE)] if name.endswith(WHOLE) else name
    found = dict(model.named_modules()).get(name)
    return model if found is None and name == type(model).__name__ else found


def why_not(root: Any, module: Any, *, is_whole: bool) -> str:
    """Return why this module of a model cannot be a place; empty if it can."""
    if any(type(each).__name__ == "DataParallel" for each in _wrappers(root)):
        return "DataParallel copies the modules of a model for each GPU"
    if isinstance(module, torch.jit.ScriptModule):
        return "it is compiled by TorchScript"
    compiled = [each for each in (*_wrappers(root), *_around(unwrapped(root), module)) if _is_compiled(each)]
    # A module that is compiled by itself can be a place as a whole: autocast and dtypes around it decide.
    if any(each is not module for each in compiled) or (compiled and not is_whole):
        return "it is compiled by torch.compile"
    return ""


def why_unseen(root: Any) -> str:
    """Return why hooks would not see every module of a model; empty if they would."""
    if any(type(each).__name__ == "DataParallel" for each in _wrappers(root)):
        return "DataParallel copies the modules of a model for each GPU"
    parts = [*_wrappers(root), *unwrapped(root).modules()]
    if any(isinstance(each, torch.jit.ScriptModule) for each in parts):
        return "a part of it is compiled by TorchScript"
    return "a part of it is compiled by torch.compile" if any(map(_is_compiled, parts)) else ""


def _is_compiled(module: Any) -> bool:
    return getattr(module, "_orig_mod", None) is not None or getattr(module, "_compiled_call_impl", None) is not None


def _wrappers(root: Any) -> list[Any]:
    """Return the root and what it wraps, without the model itself."""
    found, model = [], unwrapped(root)
    while root is not model:
        found.append(root)
        root = root._orig_mod if getattr(root, "_orig_mod", None) is not None else root.module
    return found


def _around(model: Any, module: Any) -> list[Any]:
    """Return the modules of a model that hold this one, and itself."""
    return [each for each in model.modules() if any(part is module for part in each.modules())]
