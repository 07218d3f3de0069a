"""Lets the controller ask a Python process of the job for the stacks of all its threads, when the job seems to hang.

faulthandler writes them from the signal handler itself, in C: also while a lock or the GIL is held for ever.
"""

from __future__ import annotations

import faulthandler
import os

# A real-time signal that no framework uses. Its default action ends a process, so it is sent only to those that have a
# handler for it, as /proc shows (wrapper.py, contained.sh).
SIGNAL = 44


def start() -> None:
    """Write the stacks into the attempt's log at the signal; to stderr if the log is not known."""
    try:
        log = os.open(os.environ.get("RUNG_LOG", ""), os.O_WRONLY | os.O_APPEND)
    except OSError:
        log = 2
    faulthandler.register(SIGNAL, file=log, all_threads=True)
