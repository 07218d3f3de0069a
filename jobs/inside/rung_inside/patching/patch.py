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
    original = getattr(owner, name, None)
    hook = f"{around.__module__}.{around.__qualname__}"
    if original is None or hook in getattr(original, MARK, ()):
        return False

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(replaced, MARK, (*getattr(original, MARK, ()), hook))
    setattr(owner, name, replaced)
    return True


def before(owner: Any, name: str, hook: Callable[..., Any]) -> bool:
    """Call `hook(*args, **kwargs)` before `owner.name`; it may return (args, kwargs) to go on with, or None."""

    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        changed = quietly(hook, *args, **kwargs)
        args, kwargs = changed if changed is not None else (args, kwargs)
        return original(*args, **kwargs)

    return wrap(owner, name, _named(around, hook))


def after(owner: Any, name: str, hook: Callable[..., Any]) -> bool:
    """Call `hook(result, *args, **kwargs)` after `owner.name`; the result itself goes to the script unchanged."""

    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        quietly(hook, result, *args, **kwargs)
        return result

    return wrap(owner, name, _named(around, hook))


def _named(around: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    around.__module__, around.__qualname__ = hook.__module__, hook.__qualname__
    return around
