"""Calls functions when a script fails, before its traceback is printed, and when it ends."""

from __future__ import annotations

import atexit
import sys
import traceback
from collections.abc import Callable
from typing import Any

from rung_inside.contract import records
from rung_inside.patching import patch


def install(_torch: Any) -> None:
    on_failure(_write_traceback)


def _write_traceback(error: BaseException) -> None:
    """Write the traceback to the attempt's log if stderr goes elsewhere."""
    if records.stderr_bypasses_log():
        records.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))


def on_end(then: Callable[[], Any]) -> None:
    """Call `then` if the script fails, and when it ends."""
    on_failure(lambda _error: then())
    atexit.register(patch.quietly, then)


def on_failure(then: Callable[[BaseException], Any]) -> None:
    """Call `then(error)` for an uncaught exception, before its traceback is printed."""
    previous = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        patch.quietly(then, error)
        previous(kind, error, trace)

    sys.excepthook = hook
