"""A `Trial`: one of several short runs from the same checkpoint, each with another rung, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rung.jobs.model.knobs import Knobs

AS_IT_IS = "as it is"
# How a trial ends that Rung stopped before the end of its window, and one that came to it.
BEHIND = "clearly behind"
SURVIVED = "survived"


@dataclass(frozen=True)
class Candidate:
    """One change that is tried. `rung` None: the run as it is, which shows whether any change is needed."""

    rung: str | None
    knobs: Knobs
    # For lower_lr: the share of the lr before.
    lr_share: float | None = None

    @property
    def label(self) -> str:
        """Return what tells it from the others: `lower_lr x0.01`."""
        if self.rung is None:
            return AS_IT_IS
        return self.rung if self.lr_share is None else f"{self.rung} x{self.lr_share:.4g}"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Candidate:
        return cls(data["rung"], Knobs.from_dict(data["knobs"]), data["lr_share"])

    def to_dict(self) -> dict[str, Any]:
        return {"rung": self.rung, "label": self.label, "knobs": self.knobs.to_dict(), "lr_share": self.lr_share}


@dataclass(frozen=True)
class Trial:
    """What an attempt is a trial of, over which steps, and what came of it.

    All trials about one fault run from `start` to `until`. The candidates are listed with the most likely one first.
    """

    # The number of the attempt whose fault it is about.
    about: int
    index: int
    candidates: tuple[Candidate, ...]
    start: int
    fault_step: int
    until: int
    # How many steps the trials that do not win may take together.
    bound: int
    # The loss that shows a cure: the level before the fault, or one below that of the untrained model. None: not known.
    goal: float | None = None
    # Whether it can become the job's own run without a stop, if it wins. The first of them has nothing to win against.
    may_go_on: bool = False
    # The losses over the window as (step, loss), and the time of a step; filled in when the trial ends.
    readings: tuple[tuple[int, float], ...] = ()
    ms: float | None = None
    # How it ended, for a person; empty while it runs.
    verdict: str = ""
    won: bool = False
    # It won while it ran, and became the job's own run without a stop.
    goes_on: bool = False
    # It did not win, and its folder with its checkpoints is gone.
    folder_removed: bool = False

    @property
    def candidate(self) -> Candidate:
        return self.candidates[self.index]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "candidates": [each.to_dict() for each in self.candidates]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trial:
        candidates = tuple(Candidate.from_dict(each) for each in data["candidates"])
        readings = tuple((int(step), float(loss)) for step, loss in data["readings"])
        return cls(**{**data, "candidates": candidates, "readings": readings})
