"""Shows the face of the code that runs with a job: two lines make a training script cooperate.

Standard library and torch only, Python 3.8 and torch 1.13 onwards. Torch is imported by the parts that need it, not
here: the script has it anyway, and the wrapper around the script must not pay for it.

    import rung_inside
    run = rung_inside.attach(model, optimizer, scheduler, device="cuda")
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rung_inside.attach.report import report
from rung_inside.contract.asked_knobs import asked as knobs
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
    """Make the knobs true on the live objects, say so in the log, and return the run to train with.

    `defaults` are the script's own knobs where Rung asks for none: clip, growth_interval, precision; and
    init_scale, the scaler's first scale. The learning rate's default is the optimizer's own.
    """
    run: Run = import_module("rung_inside.attach.run").Run(model, optimizer, scheduler, device, defaults or {})
    return run


def save(path_or_step: Any, state: Mapping[str, Any]) -> str:
    """Write a checkpoint so that its final name never holds half a file; an int is a step, named by the pattern."""
    path: str = import_module("rung_inside.attach.checkpoint").save(path_or_step, state)
    return path
