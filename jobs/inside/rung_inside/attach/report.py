"""Reports the steps of a script that keeps its own training loop."""

from __future__ import annotations

from typing import Any

from rung_inside.attach.base_lr import base_lr
from rung_inside.contract import records


def report(step: int, loss: Any = None, optimizer: Any = None, scaler: Any = None, **values: Any) -> None:
    """Report one step of a script that keeps its own loop, with the live lr and scale if it passes their objects."""
    effective: dict[str, Any] = {}
    if optimizer is not None:
        effective["lr"] = base_lr(optimizer)
        values.setdefault("lr", float(optimizer.param_groups[0]["lr"]))
    if scaler is not None and scaler.is_enabled():
        effective["growth_interval"] = scaler.get_growth_interval()
        values.setdefault("scale", scaler.get_scale())
    if effective:
        records.report_knobs(effective)
    records.emit("step", step=step, loss=loss, **values)
