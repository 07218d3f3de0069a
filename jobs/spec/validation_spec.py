"""The part of a job file that says how FP16 is compared with FP32: the metric, its direction, the bounds."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from rung.jobs.spec.fields import Model, Name, PositiveFloat


class ValidationSpec(Model):
    """How the run as asked is compared with its FP32 baseline; differences are in per cent of the baseline's metric."""

    metric: Name | None = Field(None, description="The number that is compared; success.metric by default.")
    better: Literal["lower", "higher"] | None = Field(
        None, description="Which way the metric gets better; by default from success.below or success.above."
    )
    pass_below: PositiveFloat = Field(1.0, description="PASS below this difference, in per cent.")
    marginal_below: PositiveFloat = Field(2.0, description="MARGINAL below this difference, FAIL from it on.")

    @model_validator(mode="after")
    def _in_order(self) -> ValidationSpec:
        if self.marginal_below < self.pass_below:
            raise ValueError("marginal_below must not be less than pass_below")
        return self


def off_as_text(value: Any) -> Any:
    # YAML reads a bare `off` as False.
    return "off" if value is False or value is None else value
