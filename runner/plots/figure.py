"""Defines what a plot shows: panels with curves over the same steps, attempts as bands, faults and rungs as marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

# The panels of a run, from above, by the quantity that each shows.
PANELS = {"loss": "loss", "grad_norm": "gradient norm", "scale": "loss scale", "lr": "learning rate"}


class Look(StrEnum):
    """How a curve is drawn."""

    OWN = "own"
    # A trial: thin.
    TRIAL = "trial"
    # Steps that a resume threw away: faded.
    LOST = "lost"


class MarkKind(StrEnum):
    FAULT = "fault"
    RUNG = "rung"


@dataclass(frozen=True)
class Curve:
    """Named values over steps. Curves with the same colour and name have one entry in the legend."""

    name: str
    points: Sequence[tuple[int, float]]
    look: Look = Look.OWN
    colour: int = 0
    # Whose numbers these are, where the curve is that of an attempt.
    attempt: int | None = None


@dataclass(frozen=True)
class Panel:
    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Band:
    """The steps of one attempt that the run kept."""

    label: str
    first: int
    last: int
    sentence: str = ""


@dataclass(frozen=True)
class Mark:
    """Something that happened at a step, with its sentence for a person."""

    kind: MarkKind
    step: int
    sentence: str
    at: float | None = None


@dataclass(frozen=True)
class Figure:
    title: str
    panels: tuple[Panel, ...]
    bands: tuple[Band, ...] = ()
    marks: tuple[Mark, ...] = ()
    description: str = ""
