"""Owns the moment after an import: runs a callback once a module of a given name has been imported by the script.

The module's own loader stays what it is, only its `exec_module` is followed by the callbacks, once; so importlib,
inspect and resources see nothing of us.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rung_inside.patching import patch

_waiting: dict[str, list[Callable[[Any], None]]] = {}


def when_imported(name: str, then: Callable[[Any], None]) -> None:
    """Call `then(module)` as soon as the module is there: now, or right after its import."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        patch.quietly(then, module)
        return
    _waiting.setdefault(name, []).append(then)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds nothing by itself: asks the finders after it, and follows the loaders of the names that are waited for."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _waiting:
            return None
        spec = _found_by_others(self, name, path, target)
        if spec is not None and spec.loader is not None:
            patch.quietly(_follow, spec.loader, name)
        return spec


def _found_by_others(own: _Finder, name: str, path: Any, target: Any) -> Any:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, target) if finder is not own and find is not None else None
        if spec is not None:
            return spec
    return None


def _follow(loader: Any, name: str) -> None:
    exec_module = loader.exec_module

    def followed(module: Any) -> None:
        del loader.exec_module
        exec_module(module)
        for then in _waiting.pop(name, ()):
            patch.quietly(then, module)

    loader.exec_module = followed
