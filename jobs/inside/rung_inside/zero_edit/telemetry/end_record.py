"""Records how many updates a process has made when it ends, and that a script never steps an optimizer."""

from __future__ import annotations

from typing import Any

from rung_inside.contract import records
from rung_inside.patching import on_exit
from rung_inside.zero_edit import run_state

# So many backward passes without an update are more than the accumulation of gradients: the script changes its weights
# by itself, where Rung cannot reach. The largest accumulation in a public recipe that we know has 128 passes.
WITHOUT_UPDATE = 256


class _State:
    """What was seen until the first update, and what was written."""

    torch: Any = None
    backwards = 0
    is_without = False
    has_ended = False


def install(torch: Any) -> None:
    _State.torch = torch
    run_state.subscribe("backward", _on_backward)
    run_state.subscribe("updated", _on_first_update)
    on_exit.on_end(_report)


def _on_backward(_loss: Any) -> None:
    _State.backwards += 1
    if _State.backwards == WITHOUT_UPDATE:
        _report_without()


def _report_without() -> None:
    if not _State.is_without:
        _State.is_without = True
        records.report_no_hands("no_update", backwards=_State.backwards)


def _on_first_update(*_: Any) -> None:
    run_state.unsubscribe("backward", _on_backward)
    run_state.unsubscribe("updated", _on_first_update)
    if _State.is_without:
        records.report_hands(_State.torch)


def _report() -> None:
    """Write the records of the end once: it comes after a failure too. Processes that only load data write none."""
    updates = run_state.updates()
    if _State.has_ended or not (updates or _State.backwards or records.has_reported_hands()):
        return
    _State.has_ended = True
    records.emit("end", updates=updates)
