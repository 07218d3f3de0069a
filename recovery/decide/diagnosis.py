"""Owns the shape of a diagnosis: the rungs it points at, what it rules out, and its verdict where no rung helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rung.jobs.model.knobs import RungName


@dataclass(frozen=True)
class Diagnosis:
    """The rungs a fault points at, the best first, and the sentence that says why. No rungs: the diagnosis is open."""

    rungs: tuple[RungName, ...] = ()
    why: str = ""
    # Where it is set, only those rungs are worth a try; without them the job ends with this sentence and this advice.
    verdict: str = ""
    advice: str = ""
    # Rungs that the evidence rules out, and those that it allows although the fault by itself would not.
    cannot: Mapping[RungName, str] = field(default_factory=dict)
    may: frozenset[RungName] = frozenset()


OPEN = Diagnosis()
