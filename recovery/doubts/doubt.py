"""Defines a doubt: what a log may show although nothing in it is acted on."""

from __future__ import annotations

from dataclasses import dataclass

from rung.jobs.model.fault import FaultKind


@dataclass(frozen=True)
class Doubt:
    """What a log may show, by which line, and why Rung does not act on it."""

    kind: FaultKind
    line: int
    step: int | None
    evidence: str
    # What was seen, as the end of a sentence: "the loss rose from 0.82 at step 10 to 5270 at step 150".
    seen: str
    not_acted_on: str

    @property
    def why(self) -> str:
        return f"{self.seen}; {self.not_acted_on}"
