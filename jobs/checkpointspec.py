"""Owns the part of a job file that says where checkpoints lie and what they are called."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from jobs.fields import Line, Model, PositiveFloat, PositiveInt, Size, on_off


class CheckpointSpec(Model):
    """Where the job keeps its checkpoints."""

    dir: Line = Field("checkpoints", description="A relative folder lies in the job's own folder under RUNG_HOME.")
    pattern: Line = Field("step_*.pt", description="File name pattern; * stands for the step.")
    every: PositiveInt | None = Field(None, description="Steps between checkpoints, told to the script.")
    mirror: Annotated[Size | None, BeforeValidator(on_off)] = Field(
        "1g", description="A healthy checkpoint up to this size is copied here from a host now and then; off: never."
    )
    mirror_every: PositiveFloat = Field(600.0, description="Seconds between two such copies.")

    @field_validator("pattern")
    @classmethod
    def _one_folder(cls, pattern: str) -> str:
        if "/" in pattern or pattern.count("*") != 1:
            raise ValueError("give a file name with one * where the step stands, and no folder")
        return pattern
