"""Ends a run whose time is nearly up: a checkpoint is due at once, and when it is whole the run ends by itself.

A site that ends runs at a time limit says so before, by the signal that RUNG_SAVE_SIGNAL names. What the run would do
after its checkpoint would be lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

from rung_inside.patching import patch

# How a run ends that has saved because its time is nearly up. The site knows it by this code.
EXIT_CODE = 85


class _Told:
    """Whether the signal has come, and nothing was saved since."""

    is_told = False


def install() -> None:
    """Wait for the signal, unless the script does so itself."""
    number = os.environ.get("RUNG_SAVE_SIGNAL", "").strip()
    # ValueError: there is no such signal, or torch was imported in a thread, which can wait for none.
    with contextlib.suppress(ValueError, OSError):
        if number.isdigit() and signal.getsignal(int(number)) is signal.SIG_DFL:
            signal.signal(int(number), _on_signal)


def _on_signal(_number: int, _frame: Any) -> None:
    _Told.is_told = True


def is_told() -> bool:
    return _Told.is_told


def take() -> bool:
    """Return whether the signal has come, once: a run that could not be saved goes on until its site ends it."""
    told, _Told.is_told = _Told.is_told, False
    return told


def end(step: int) -> None:
    """End the run in an orderly way: the script may close its files and its trackers."""
    patch.note(f"saved at step {step}, because the time is nearly up: the run ends with exit code {EXIT_CODE}")
    raise SystemExit(EXIT_CODE)
