"""Owns the part of a job file that says which settings Rung may change, and how they reach the script."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from jobs.fields import Line, Model, PositiveFloat, PositiveInt, on_off
from jobs.knobs import KNOB_NAMES, Knobs, Precision

# torch's own, for a script that is told its settings and need not state them all.
DEFAULTS: dict[str, Any] = {"growth_interval": 2000, "precision": Precision.AMP_FP16}


class KnobSpec(Model):
    """The settings Rung may change, as the job has them at first, and how they reach the script."""

    mode: Literal["flags", "inside", "zero-edit"] = Field(
        "flags",
        description="flags: only what `run` or `envs` has a {placeholder} for; inside: the script imports rung_inside; "
        "zero-edit: set on the live objects of a script that knows nothing of Rung.",
    )
    lr: PositiveFloat | None = Field(None, description="Learning rate.")
    clip: Annotated[PositiveFloat | None, BeforeValidator(on_off)] = Field(
        None, description="max_norm of gradient clipping; off or null: no clipping."
    )
    growth_interval: PositiveInt | None = Field(
        None, description="GradScaler's growth_interval: 2000, and with zero-edit the script's own, unless stated."
    )
    precision: Precision | None = Field(
        None, description="What the run computes in: amp_fp16, and with zero-edit the script's own, unless stated."
    )
    precision_text: dict[Precision, Line] = Field({}, description="The script's own word for a precision.")
    batch: PositiveInt | None = Field(None, description="Batch size, halved when memory runs out.")
    accumulation: PositiveInt | None = Field(None, description="Gradient accumulation, doubled when batch is halved.")

    def knobs(self) -> Knobs:
        """Return the knobs of the first attempt; what zero-edit leaves unsaid is the script's own business."""
        stated = {name: getattr(self, name) for name in KNOB_NAMES if getattr(self, name, None) is not None}
        return Knobs(**(stated if self.mode == "zero-edit" else DEFAULTS | stated))
