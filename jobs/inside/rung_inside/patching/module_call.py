"""Wraps the call of all modules of a class. A module itself gets no hook: it would be pickled with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def wrap_call(cls: Any, around: Callable[..., Any]) -> None:
    """Replace `cls.__call__` by `around(call, module, args, kwargs)`; the caller sees to it that this is done once."""
    class_call = cls.__dict__.get("__call__")

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it is the method itself
        # Looked up at each call: tracers replace Module.__call__ for a while. Of the type, it is a plain function.
        return around(class_call or super(cls, type(self)).__call__, self, args, kwargs)

    cls.__call__ = __call__
