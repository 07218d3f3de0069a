"""The part of a job file that bounds trials: how many candidates, over how many steps, at what cost."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from rung.jobs.spec.fields import Model, not_bool

PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)\s*%")
# Fewer steps beyond a fault show nothing.
FEWEST_STEPS = 100

COST_SCHEMA = {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {"pattern": "^[0-9.]+ *%$"}]}
STEPS_SCHEMA = {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": FEWEST_STEPS}]}


def _share(value: Any) -> Any:
    """Read `10%` as 0.1."""
    match = PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match:
        return float(match[1]) / 100
    if isinstance(value, str):
        raise ValueError("write a share such as 10%")
    return not_bool(value)


def _auto(value: Any) -> Any:
    return None if value == "auto" else not_bool(value)


class Trials(Model):
    """Short runs from the same checkpoint that decide between rungs."""

    candidates: Annotated[int, BeforeValidator(not_bool), Field(ge=2, le=4)] = Field(
        4, description="How many rungs are tried at most, each in a short run of its own."
    )
    # None: auto.
    steps: Annotated[
        Annotated[int, Field(ge=FEWEST_STEPS, le=2**53)] | None, BeforeValidator(_auto), WithJsonSchema(STEPS_SCHEMA)
    ] = Field(None, description="Steps of a trial beyond the step of the fault; auto: as many as the cost allows.")
    cost: Annotated[float, BeforeValidator(_share), Field(gt=0, le=1), WithJsonSchema(COST_SCHEMA)] = Field(
        0.1, description=f"Share of the run's steps for all trials; at least {FEWEST_STEPS} steps each."
    )
