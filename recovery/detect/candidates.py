"""Owns the findings that are open: how much each weighs, and which of them is the first cause.

A wall of errors has one cause. Among findings that tell of a cause the first line wins; what follows from something
else, or only quotes a message, counts when there is nothing better.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from rung.jobs.model.fault import Fault, FaultKind


class Certainty(IntEnum):
    """How much a finding says; the lower, the more."""

    RULE = 0  # a person's own rule: act on it now
    DECISIVE = 1  # act on it now
    AT_END = 2  # it explains the end, if the job ends
    PENDING = 3  # one bad value that nothing has confirmed: it explains the end when no cause is known
    UNSURE = 4  # bad gradients that nothing has confirmed: perhaps a scaler at work in the last steps
    CASCADE = 5  # follows from something else
    QUOTED = 6  # somebody quotes the message


# Findings of one rank here tell of a cause, and the first of them by line is the first cause.
_RANK = {weight: weight.value for weight in Certainty} | {Certainty.AT_END: Certainty.DECISIVE.value}


@dataclass
class FaultCandidate:
    fault: Fault
    weight: Certainty
    listed: bool = False


def _precedence(found: FaultCandidate) -> tuple[int, bool, int]:
    """Order findings by how close to the cause they are: a rank that was killed comes before a link that broke."""
    is_echo = found.weight is Certainty.CASCADE and found.fault.kind is FaultKind.COMM_FAULT
    return _RANK[found.weight], is_echo, found.fault.line or 0


class FaultCandidates:
    """Holds at most one finding of a kind: an incident is told once, however many lines and ranks tell of it."""

    def __init__(self) -> None:
        self._open: dict[FaultKind, FaultCandidate] = {}

    def __contains__(self, kind: FaultKind) -> bool:
        return kind in self._open

    def __iter__(self) -> Iterator[FaultCandidate]:
        return iter(self._open.values())

    def __len__(self) -> int:
        return len(self._open)

    def get(self, kind: FaultKind) -> FaultCandidate | None:
        return self._open.get(kind)

    def hold(self, fault: Fault, weight: Certainty) -> FaultCandidate:
        """Open a finding, or strengthen the one of its kind."""
        found = self._open.get(fault.kind)
        # What only follows, or only quotes, gives way to the cause itself; of two causes the first line stays.
        if found is None or found.weight >= Certainty.CASCADE > weight:
            found = self._open[fault.kind] = FaultCandidate(fault, weight)
        found.weight = min(found.weight, weight)
        return found

    def add(self, fault: Fault, weight: Certainty) -> list[Fault]:
        """Hold a finding; return it when it is to be listed now."""
        found = self.hold(fault, weight)
        # Whether a follow-up or a quotation is all there is, only the end tells.
        if found.listed or found.weight >= Certainty.CASCADE:
            return []
        found.listed = True
        return [found.fault]

    def copy(self) -> FaultCandidates:
        """Return the same findings, apart: what is added there is not open here."""
        other = FaultCandidates()
        other._open = {kind: replace(found) for kind, found in self._open.items()}
        return other

    def drop(self, kind: FaultKind) -> None:
        self._open.pop(kind, None)

    def explain(self, kinds: Container[FaultKind], replay: Mapping[str, str]) -> None:
        """Add what a replay told to the open findings of these kinds; the first that was told stays."""
        for kind, found in self._open.items():
            if kind in kinds and not found.fault.replay:
                found.fault = replace(found.fault, replay=replay)

    def keep(self, kinds: Container[FaultKind]) -> None:
        """Forget all but these kinds: the run got past the rest."""
        self._open = {kind: found for kind, found in self._open.items() if kind in kinds}

    def at_end(self) -> list[Fault]:
        """Return the findings that only the end of the log decides: the best explanation, when there is no other."""
        best = min((found.weight for found in self), default=Certainty.RULE)
        if best < Certainty.CASCADE:
            return []
        return [found.fault for found in self if found.weight is best and not found.listed]

    def first(self, *, ended: bool, weakest: Certainty = Certainty.QUOTED) -> Fault | None:
        """Return the fault to act on now: the first cause, never what followed from it."""
        if not self._open or not (ended or min(found.weight for found in self) <= Certainty.DECISIVE):
            return None
        found = [each for each in self if each.weight <= weakest]
        return min(found, key=_precedence).fault if found else None
