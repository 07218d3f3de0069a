"""Keeps the faults found so far and picks the first cause among them.

Many errors have one cause. Among candidates that name a cause the first line wins; what follows from another fault, or
only quotes a message, counts when there is nothing better.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from rung.jobs.model.fault import Fault, FaultKind
from rung.recovery.detect.several_ranks import got_past, outranks
from rung.recovery.signatures import Role
from rung.recovery.signatures.search import Match


class Certainty(IntEnum):
    """How certain a candidate is; a lower value is more certain."""

    RULE = 0  # a person's own rule: act on it now
    DECISIVE = 1  # act on it now
    AT_END = 2  # it explains the end, if the job ends
    PENDING = 3  # one bad value that nothing has confirmed: it explains the end when no cause is known
    UNSURE = 4  # bad gradients, or words about bad numbers, that nothing has confirmed: it explains only a failure
    CASCADE = 5  # follows from something else
    QUOTED = 6  # the line only quotes the message


# Candidates of the same rank are ordered by line: the first is the cause.
_RANK = {certainty: certainty.value for certainty in Certainty} | {Certainty.AT_END: Certainty.DECISIVE.value}


@dataclass
class FaultCandidate:
    fault: Fault
    certainty: Certainty
    listed: bool = False


def certainty_of(match: Match) -> Certainty:
    """Return how certain a fault is that a message names."""
    row = match.signature
    if match.quoted:
        return Certainty.QUOTED
    if row.role is Role.CASCADE:
        return Certainty.CASCADE
    # A full disk may stop only a logging thread: it counts when the job has ended.
    now = row.role is Role.ROOT and match.raised and row.fault is not FaultKind.INFRA_FAULT
    return Certainty.DECISIVE if now else Certainty.AT_END


def _precedence(found: FaultCandidate) -> tuple[int, bool, int]:
    """Order candidates by how close to the cause they are: a killed process comes before a broken link."""
    is_echo = found.certainty is Certainty.CASCADE and found.fault.kind is FaultKind.COMM_FAULT
    return _RANK[found.certainty], is_echo, found.fault.line or 0


class FaultCandidates:
    """Holds at most one candidate of a kind, however many lines and ranks report the fault."""

    def __init__(self) -> None:
        self.by_kind: dict[FaultKind, FaultCandidate] = {}

    def __contains__(self, kind: FaultKind) -> bool:
        return kind in self.by_kind

    def __iter__(self) -> Iterator[FaultCandidate]:
        return iter(self.by_kind.values())

    def __len__(self) -> int:
        return len(self.by_kind)

    def get(self, kind: FaultKind) -> FaultCandidate | None:
        return self.by_kind.get(kind)

    def record(self, fault: Fault, certainty: Certainty) -> FaultCandidate:
        """Open a candidate, or raise the certainty of the one of its kind."""
        found = self.by_kind.get(fault.kind)
        # What only follows, or only quotes, gives way to the cause itself; of two causes the first line stays.
        if found is None or found.certainty >= Certainty.CASCADE > certainty:
            found = self.by_kind[fault.kind] = FaultCandidate(fault, certainty)
        found.certainty = min(found.certainty, certainty)
        return found

    def add(self, fault: Fault, certainty: Certainty) -> list[Fault]:
        """Open a candidate; return its fault when it is to be listed now."""
        found = self.record(fault, certainty)
        # Only the end of the log shows whether there is nothing better than a follow-up or a quotation.
        if found.listed or found.certainty >= Certainty.CASCADE:
            return []
        found.listed = True
        return [found.fault]

    def copy(self) -> FaultCandidates:
        """Return an independent copy."""
        other = FaultCandidates()
        other.by_kind = {kind: replace(found) for kind, found in self.by_kind.items()}
        return other

    def drop(self, kind: FaultKind) -> None:
        self.by_kind.pop(kind, None)

    def attach_replay(self, kinds: Container[FaultKind], replay: Mapping[str, str]) -> None:
        """Add a replay to the open candidates of these kinds that have none, or one of a rank that shows less."""
        for kind, found in self.by_kind.items():
            if kind in kinds and (not found.fault.replay or outranks(replay, found.fault.replay)):
                found.fault = replace(found.fault, replay=replay)

    def get_past(self, step: int | None, kinds: Container[FaultKind]) -> None:
        """Drop what a finite loss at this step shows the run to have got past; `kinds` stay.

        A person's own rule stays too: whether it is acted on must not depend on how much was read at a time.
        """
        self.by_kind = {
            kind: found
            for kind, found in self.by_kind.items()
            if kind in kinds or found.certainty is Certainty.RULE or not got_past(found.fault, step)
        }

    def at_end(self) -> list[Fault]:
        """Return the faults that count only at the end of the log, when there is no better explanation."""
        best = min((found.certainty for found in self), default=Certainty.RULE)
        if best < Certainty.CASCADE:
            return []
        return [found.fault for found in self if found.certainty is best and not found.listed]

    def first(self, *, ended: bool, weakest: Certainty = Certainty.QUOTED) -> Fault | None:
        """Return the fault to act on now: the first cause, never what followed from it."""
        if not self.by_kind or not (ended or min(found.certainty for found in self) <= Certainty.DECISIVE):
            return None
        found = [each for each in self if each.certainty <= weakest]
        return min(found, key=_precedence).fault if found else None
