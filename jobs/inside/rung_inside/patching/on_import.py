"""Calls a function right after the script has imported a given module.

The module keeps its loader; only `exec_module` is wrapped, once. So importlib, inspect and resources work as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rung_inside.patching import patch

_waiting: dict[str, list[Callable[[Any], None]]] = {}


def when_imported(name: str, then: Callable[[Any], None]) -> None:
    """Call `then(module)` now if the module is imported, or else right after its import."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        patch.quietly(then, module)
        return
    _waiting.setdefault(name, []).append(then)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Asks the other finders, and hooks the loaders of the modules that are waited for."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _waiting:
            return None
        spec = _find_elsewhere(self, name, path, target)
        if spec is not None and spec.loader is not None:
            patch.quietly(_hook_loader, spec.loader, name)
        return spec


def _find_elsewhere(ours: _Finder, name: str, path: Any, target: Any) -> Any:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, target) if finder is not ours and find is not None else None
        if spec is not None:
            return spec
    return None


def _hook_loader(loader: Any, name: str) -> None:
    exec_module = loader.exec_module

    def exec_and_call(module: Any) -> None:
        del loader.exec_module
        exec_module(module)
        for then in _waiting.pop(name, ()):
            patch.quietly(then, module)

    loader.exec_module = exec_and_call
