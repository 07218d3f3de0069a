"""Replaces methods and functions of other code, once each.

What the script's code raises passes unchanged; what Rung's hooks raise becomes one `rung| note` line.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from rung_inside.contract import records

# The hooks that a replaced function already has.
MARK = "_rung_hooks"
_noted: set[str] = set()


def note(text: str) -> None:
    """Write a note for a person, each text once."""
    if text not in _noted:
        _noted.add(text)
        # A script may have closed its output.
        with contextlib.suppress(Exception):
            records.emit("note", text=text)


def quietly(action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result of Rung's own code; None and a note if it raises, since it must not end a run."""
    try:
        return action(*args, **kwargs)
    except Exception as error:
        note_error(action, error)
        return None


def note_error(action: Callable[..., Any], error: Exception) -> None:
    """Write a note about what Rung's own code raised."""
    where = getattr(action, "__qualname__", str(action))
    note(f"{getattr(action, '__module__', '')}.{where}: {type(error).__name__}: {error}"[:400])


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> bool:
    """Replace `owner.name` (class or module) by a call of `around(original, *args, **kwargs)`.

    False if it does not exist or has this hook already. `around` must guard its own parts with `quietly`.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        return replaced

    return replace(owner, name, around, make)


def before(owner: Any, name: str, hook: Callable[..., Any]) -> bool:
    """Call `hook(*args, **kwargs)` before `owner.name`; it may return (args, kwargs) to go on with, or None."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(*args: Any, **kwargs: Any) -> Any:
            try:
                changed = hook(*args, **kwargs)
            except Exception as error:
                note_error(hook, error)
            else:
                if changed is not None:
                    args, kwargs = changed
            return original(*args, **kwargs)

        return replaced

    return replace(owner, name, hook, make)


def after(owner: Any, name: str, hook: Callable[..., Any]) -> bool:
    """Call `hook(result, *args, **kwargs)` after `owner.name`; the result itself goes to the script unchanged."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            try:
                hook(result, *args, **kwargs)
            except Exception as error:
                note_error(hook, error)
            return result

        return replaced

    return replace(owner, name, hook, make)


def around(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> bool:
    """Replace `owner.name` by `make(original)`; False if it does not exist or was made by this function already.

    For what runs in every update: it costs one Python call there, and not one more for a hook.
    """
    return replace(owner, name, make, make)


def replace(owner: Any, name: str, hook: Callable[..., Any], make: Callable[[Any], Callable[..., Any]]) -> bool:
    """Replace `owner.name` by what `make` makes of it, once for each hook; False if it does not exist or has it."""
    original = getattr(owner, name, None)
    hook_name = f"{hook.__module__}.{hook.__qualname__}"
    if original is None or hook_name in getattr(original, MARK, ()):
        return False
    replaced = functools.wraps(original)(make(original))
    setattr(replaced, MARK, (*getattr(original, MARK, ()), hook_name))
    setattr(owner, name, replaced)
    return True
