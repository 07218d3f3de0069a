"""The part of a job file that gives the folder and the names of checkpoints."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from rung.jobs.spec.fields import Line, Model, PositiveFloat, PositiveInt, Size, not_bool, on_off

# The code in the job reads names by the same rules.
STEP_IN_NAME = re.compile(r"(?:step|iteration|iter)s?[_=-]?(\d+)", re.IGNORECASE)
NUMBER_IN_NAME = re.compile(r"(?:^|[_=.-]|ckpt|checkpoint|model)(\d+)(?=$|[_=.-])", re.IGNORECASE)
# In the names of the versions that Rung keeps of a file which every save overwrites: ckpt.rung-step-200.pt.
KEPT_MARK = ".rung-"
# The names of the checkpoints that Rung itself saves, and how many updates lie between two of them.
OWN_PATTERN, OWN_EVERY = "rung-step-*.pt", 500
EPOCH_IN_NAME = re.compile(r"(?<![a-z])(?:epoch|ep)[_=-]?\d+", re.IGNORECASE)


def step_in_name(name: str) -> int | None:
    """Return the step in a checkpoint's name; the number of an epoch does not count."""
    name = name.rpartition(KEPT_MARK)[2]
    stem, dot, ending = name.rpartition(".")
    plain = EPOCH_IN_NAME.sub("", name if ending.isdigit() or not dot else stem)
    found = STEP_IN_NAME.findall(plain) or NUMBER_IN_NAME.findall(plain)
    return int(found[-1]) if found else None


class CheckpointSpec(Model):
    """Where the job keeps its checkpoints."""

    dir: Line = Field("checkpoints", description="A relative folder is in the job's folder under RUNG_HOME.")
    by: Literal["script", "rung"] = Field(
        "script", description="Who saves them: the script, or, with mode zero-edit, Rung, for a script that does not."
    )
    pattern: Line = Field(
        "step_*.pt", description="Name of a file or folder; * stands for the step. Without *: a file, kept in versions."
    )
    keep: Annotated[int, BeforeValidator(not_bool), Field(ge=4, le=100)] = Field(
        5, description="How many versions of a file without * in its name are kept, or checkpoints that Rung saves."
    )
    every: PositiveInt | None = Field(None, description="Steps between checkpoints: passed to the script, or by: rung.")
    mirror: Annotated[Size | None, BeforeValidator(on_off)] = Field(
        "1g", description="A healthy checkpoint up to this size is copied here from a host now and then; off: never."
    )
    mirror_every: PositiveFloat = Field(600.0, description="Seconds between two such copies.")

    @model_validator(mode="before")
    @classmethod
    def _rungs_own(cls, data: Any) -> Any:
        """Give the checkpoints that Rung saves their names and their distance."""
        if not isinstance(data, dict) or data.get("by") != "rung":
            return data
        if data.get("pattern", OWN_PATTERN) != OWN_PATTERN:
            raise ValueError("pattern: Rung names the checkpoints that it saves itself: leave pattern out, or by: rung")
        return {**data, "pattern": OWN_PATTERN, "every": OWN_EVERY if data.get("every") is None else data["every"]}

    @field_validator("pattern")
    @classmethod
    def _one_folder(cls, pattern: str) -> str:
        if "/" in pattern or pattern.count("*") > 1:
            raise ValueError("give the name of a file or folder with one * where the step stands, and no slash")
        if "*" not in pattern and (pattern.startswith(".") or KEPT_MARK in pattern or re.search(r"[][?]", pattern)):
            raise ValueError(
                "give the plain name of the file that every save overwrites, or a name with one * where the step stands"
            )
        return pattern

    @property
    def is_rungs_own(self) -> bool:
        """Tell whether Rung saves the checkpoints, from inside the job."""
        return self.by == "rung"

    @property
    def is_one_file(self) -> bool:
        """Tell whether every save overwrites one file, of which Rung keeps versions."""
        return "*" not in self.pattern

    @property
    def searched(self) -> str:
        """Return the pattern of what can be resumed from: the checkpoints, or the versions of the one file."""
        stem, dot, endings = self.pattern.partition(".")
        return f"{stem}{KEPT_MARK}*{dot}{endings}" if self.is_one_file else self.pattern

    def loaded_name(self, checkpoint: str) -> str:
        """Return the name that the script loads this checkpoint by: a version is put back under the file's own name."""
        return self.pattern if self.is_one_file and PurePath(checkpoint).match(self.searched) else checkpoint
