"""Sets `constants` and `fp32_modules` in a script that does not know Rung, and reports them with its updates."""

from __future__ import annotations

from typing import Any

from rung_inside.patching import on_exit
from rung_inside.places import fp16_places
from rung_inside.zero_edit import run_state


def install(_torch: Any) -> None:
    fp16_places.start(run_state.asked_knob("constants"), run_state.asked_knob("fp32_modules"))
    if fp16_places.is_asked():
        run_state.subscribe("updated", _on_update)
        on_exit.on_end(fp16_places.report)


def _on_update(_optimizer: Any, _skipped: Any) -> None:
    fp16_places.end_update()
