"""The part of a job file that gives the folder and the names of checkpoints."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from rung.jobs.spec.fields import Line, Model, PositiveFloat, PositiveInt, Size, on_off

# The code in the job reads names by the same rules.
STEP_IN_NAME = re.compile(r"(?:step|iteration|iter)s?[_=-]?(\d+)", re.IGNORECASE)
NUMBER_IN_NAME = re.compile(r"(?:^|[_=.-]|ckpt|checkpoint|model)(\d+)(?=$|[_=.-])", re.IGNORECASE)
EPOCH_IN_NAME = re.compile(r"(?<![a-z])(?:epoch|ep)[_=-]?\d+", re.IGNORECASE)


def step_in_name(name: str) -> int | None:
    """Return the step in a checkpoint's name; the number of an epoch does not count."""
    stem, dot, ending = name.rpartition(".")
    plain = EPOCH_IN_NAME.sub("", name if ending.isdigit() or not dot else stem)
    found = STEP_IN_NAME.findall(plain) or NUMBER_IN_NAME.findall(plain)
    return int(found[-1]) if found else None


class CheckpointSpec(Model):
    """Where the job keeps its checkpoints."""

    dir: Line = Field("checkpoints", description="A relative folder is in the job's folder under RUNG_HOME.")
    pattern: Line = Field("step_*.pt", description="Name of a file or folder; * stands for the step.")
    every: PositiveInt | None = Field(None, description="Steps between checkpoints, passed to the script.")
    mirror: Annotated[Size | None, BeforeValidator(on_off)] = Field(
        "1g", description="A healthy checkpoint up to this size is copied here from a host now and then; off: never."
    )
    mirror_every: PositiveFloat = Field(600.0, description="Seconds between two such copies.")

    @field_validator("pattern")
    @classmethod
    def _one_folder(cls, pattern: str) -> str:
        if "/" in pattern or pattern.count("*") != 1:
            raise ValueError("give the name of a file or folder with one * where the step stands, and no slash")
        return pattern
