"""The public functions of the code that runs in a job: two lines make a training script cooperate.

Standard library and torch only, Python 3.8 and torch 1.13 onwards. Only the parts that need torch import it, so
that other users of this package start fast.

    import rung_inside
    run = rung_inside.attach(model, optimizer, scheduler, device="cuda")
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rung_inside.attach.report import report
from rung_inside.contract.asked_knobs import knobs
from rung_inside.contract.records import metric

if TYPE_CHECKING:
    from rung_inside.attach.run import Run

__all__ = ["attach", "knobs", "metric", "report", "save"]


def attach(
    model: Any,
    optimizer: Any,
    scheduler: Any = None,
    device: Any = "cpu",
    defaults: Mapping[str, Any] | None = None,
) -> Run:
    """Set the knobs on the live objects, report them in the log, and return the run to train with.

    `defaults` are the script's knobs where Rung asks for none: clip, growth_interval, precision; and init_scale,
    the first scale of the scaler. The default learning rate is the optimizer's.
    """
    run: Run = import_module("rung_inside.attach.run").Run(model, optimizer, scheduler, device, defaults or {})
    return run


def save(path_or_step: Any, state: Mapping[str, Any]) -> str:
    """Write a checkpoint, whole or not at all; an int is a step, and the pattern gives its name."""
    path: str = import_module("rung_inside.attach.checkpoint").save(path_or_step, state)
    return path
