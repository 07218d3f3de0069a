"""Calls functions when a script fails, before its traceback is printed, and when it ends."""

from __future__ import annotations

import atexit
import sys
import traceback
from collections.abc import Callable
from typing import Any

from rung_inside.contract import records
from rung_inside.patching import patch

_is_off: list[bool] = []


def install(_torch: Any) -> None:
    on_failure(_write_traceback)


def _write_traceback(error: BaseException) -> None:
    """Write the traceback to the attempt's log if stderr goes elsewhere."""
    if records.stderr_bypasses_log():
        records.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))


def on_end(then: Callable[[], Any]) -> None:
    """Call `then` if the script fails, and when it ends."""
    on_failure(lambda _error: then())
    atexit.register(lambda: None if _is_off else patch.quietly(then))


def on_failure(then: Callable[[BaseException], Any]) -> None:
    """Call `then(error)` for an uncaught exception, before its traceback is printed."""
    previous = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        if not _is_off:
            patch.quietly(then, error)
        previous(kind, error, trace)

    sys.excepthook = hook


def turn_off() -> None:
    """Call none of these functions any more."""
    _is_off[:] = [True]
