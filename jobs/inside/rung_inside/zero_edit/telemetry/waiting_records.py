"""Lets the records of good updates wait for each other, because opening and closing the log takes longer than a record.

None waits for long, and all other records come after those that wait. Bad numbers never wait.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from rung_inside.contract import records
from rung_inside.patching import patch
from rung_inside.zero_edit.telemetry import step_numbers

# The most updates that wait; and how many seconds after the newest write none waits any more when the next one comes.
MOST = 8
LONGEST = 0.1

# The values of each, as Numbers has them: to make an object costs a call in each update. A deque,
# because other threads write, too: what one of them takes out, no other one does.
updates: deque[tuple[Any, ...]] = deque()
_seconds_since_write = records.seconds_since_write


def add(update: tuple[Any, ...]) -> None:
    """Let an update wait, if those before it do not wait for too long: then all are written."""
    updates.append(update)
    # A clock decides when a record is written, never which ones.
    if len(updates) >= MOST or _seconds_since_write() >= LONGEST:
        write()


def write() -> None:
    """Write the records that wait."""
    text = _take()
    if text:
        records.write(text)


def _take() -> str:
    if not updates:
        return ""
    taken = []
    try:
        while True:
            taken.append(updates.popleft())
    except IndexError:
        # None is left. Another thread may have taken the last one.
        pass
    return step_numbers.text_of(taken) if records.is_first_rank() else ""


def _write_before_exit(*_: Any, **__: Any) -> None:
    write()


def install(_torch: Any) -> None:
    records.write_first(_take)
    # It ends a process at once, and a forked one always: no function is called then that is to be called at the end.
    patch.before(os, "_exit", _write_before_exit)
    if hasattr(os, "register_at_fork"):
        # They are the parent's, which writes them.
        os.register_at_fork(after_in_child=updates.clear)
