"""Defines `Diagnosis`: the rungs a fault points at, those it rules out, and the verdict where no rung helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rung.jobs.model.knobs import RungName


@dataclass(frozen=True)
class Diagnosis:
    """The rungs a fault points at, the best first, and the reason as a sentence. No rungs: the diagnosis is open."""

    rungs: tuple[RungName, ...] = ()
    why: str = ""
    # With a verdict only those rungs are tried; when none is left, the job stops with the verdict and the advice.
    verdict: str = ""
    advice: str = ""
    # Rungs that the evidence rules out, and those that it allows although treatments.py does not.
    ruled_out: Mapping[RungName, str] = field(default_factory=dict)
    allowed: frozenset[RungName] = frozenset()
    # The evidence proves the first of the rungs, so that no trial is needed.
    proven: bool = False
    # Why the first of the rungs, where that is more than `why` says.
    first_why: str = ""
    # For fp32_modules: the places that the replay has found.
    places: tuple[str, ...] = ()

    def why_rung(self, rung: RungName) -> str:
        """Return why this one of the rungs."""
        return self.first_why if self.first_why and rung is self.rungs[0] else self.why


OPEN = Diagnosis()
