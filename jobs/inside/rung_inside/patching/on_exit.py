"""Owns the end of a script: what is still to be said comes before the traceback, or before the interpreter is gone."""

from __future__ import annotations

import atexit
import sys
import traceback
from collections.abc import Callable
from typing import Any

from rung_inside.contract import records
from rung_inside.patching import patch


def install(_torch: Any) -> None:
    on_failure(_tell_the_log)


def _tell_the_log(error: BaseException) -> None:
    """Write the traceback where Rung reads, when the script's shell has sent it elsewhere."""
    if records.errors_go_elsewhere():
        records.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))


def on_end(then: Callable[[], Any]) -> None:
    """Call `then` when the script fails, before its traceback is printed, and when it ends."""
    on_failure(lambda _error: then())
    atexit.register(patch.quietly, then)


def on_failure(then: Callable[[BaseException], Any]) -> None:
    """Call `then(error)` at an exception that nobody caught, before its traceback is printed."""
    own = sys.excepthook

    def told(kind: Any, error: Any, trace: Any) -> None:
        patch.quietly(then, error)
        own(kind, error, trace)

    sys.excepthook = told
