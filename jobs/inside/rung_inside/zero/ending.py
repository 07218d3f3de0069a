"""Owns the end of a script: what is still to be said comes before the traceback, or before the interpreter is gone."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from typing import Any

from rung_inside.zero import patching


def on_end(then: Callable[[], Any]) -> None:
    """Call `then` when the script fails, before its traceback is printed, and when it ends."""
    on_failure(lambda _error: then())
    atexit.register(patching.quietly, then)


def on_failure(then: Callable[[BaseException], Any]) -> None:
    """Call `then(error)` at an exception that nobody caught, before its traceback is printed."""
    own = sys.excepthook

    def told(kind: Any, error: Any, trace: Any) -> None:
        patching.quietly(then, error)
        own(kind, error, trace)

    sys.excepthook = told
