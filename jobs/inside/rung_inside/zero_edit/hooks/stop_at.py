"""Ends a trial after its last step, when the next backward pass begins: by then the script has saved what it saves.

The controller stops a trial too, but may see its last step much later.
"""

from __future__ import annotations

import sys
from typing import Any

from rung_inside.contract import asked_knobs
from rung_inside.zero_edit import run_state

_last = [0]


def install(_torch: Any) -> None:
    last = asked_knobs.last_step()
    if last is not None:
        _last[0] = last
        run_state.subscribe("backward", _end_after_last)


def _end_after_last(_loss: Any) -> None:
    if run_state.step() >= _last[0]:
        sys.exit(0)
