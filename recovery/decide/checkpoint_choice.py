"""Owns the choice of the checkpoint to resume from: the newest one that is verified and older than the fault.

Verifying is the job's own environment's work; here are only the verdicts. Nothing is ever deleted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rung.jobs.job import Attempt
from rung.jobs.model.fault import Fault
from rung.recovery.decide.quarantine import QUARANTINED, quarantined
from rung.recovery.decide.treatments import TREATMENTS, Budget

HEALTHY = "healthy"
# The job's own environment could not look into it: nothing is known, and it may be asked again another time.
UNVERIFIED = "unverified"
# Whole and finite; what is missing is told to a person, and is no reason to lose the work in it.
SOUND = frozenset({HEALTHY, "needs_allow_list", "no_step"})


@dataclass(frozen=True)
class Checkpoint:
    """A file or folder a job left, with what its own environment said of it. `verdict` None: not looked at yet."""

    name: str
    step: int
    written_at: float
    verdict: str | None = None
    detail: str = ""
    # The stay it lies in: a host, and which stay of the job there. None: where the last attempt was.
    residence: tuple[str, int] | None = None
    # Whose word the step is: the job's own ("saved"), the "content"'s, the "name"'s, or reckoned from the "time".
    step_from: str = "content"
    kind: str = ""
    size: int = 0


@dataclass(frozen=True)
class Choice:
    checkpoint: Checkpoint | None
    because: str


def usable(checkpoints: Sequence[Checkpoint], attempts: Sequence[Attempt], limit: int | None) -> list[Checkpoint]:
    """Return the checkpoints that are old enough, newest first, whatever their verdict; quarantined ones say so."""
    fit = [found for found in checkpoints if (limit is None or found.step < limit) and not _tainted(found, attempts)]
    marks = quarantined(attempts)
    marked = [
        replace(found, verdict=QUARANTINED, detail=marks[found.name].why)
        if found.name in marks and marks[found.name].holds(found.written_at)
        else found
        for found in fit
    ]
    return sorted(marked, key=lambda found: (found.step, found.written_at), reverse=True)


def _tainted(found: Checkpoint, attempts: Sequence[Attempt]) -> bool:
    """Tell whether an attempt wrote this file after its numbers had gone wrong, even if all of it is finite."""
    for attempt in attempts:
        began = attempt.fault.began if attempt.fault and numeric(attempt.fault) else None
        if began is None or attempt.started_at is None:
            continue
        ended = attempt.ended_at if attempt.ended_at is not None else float("inf")
        if began <= found.step and attempt.started_at <= found.written_at <= ended:
            return True
    return False


def numeric(fault: Fault) -> bool:
    return TREATMENTS[fault.kind].budget is Budget.LADDER


def choose(checkpoints: Sequence[Checkpoint], attempts: Sequence[Attempt], limit: int | None) -> Choice:
    """Return the newest sound checkpoint older than `limit`, and the sentence that says why it is that one."""
    passed: list[str] = []
    for found in usable(checkpoints, attempts, limit):
        if found.verdict in SOUND:
            older = f"older than step {limit}" if limit is not None else "the newest"
            return Choice(found, f"{found.name} is verified and {older}{_reckoned(found)}{_stepped_over(passed)}")
        why = f", {found.detail}" if found.verdict in (UNVERIFIED, QUARANTINED) else ""
        passed.append(f"{found.name} is {found.verdict or UNVERIFIED}{why}")
    if passed:
        return Choice(None, f"from scratch: no healthy checkpoint{_stepped_over(passed)}")
    if checkpoints:
        return Choice(None, f"from scratch: no checkpoint is {f'older than step {limit}' if limit else 'worth it'}")
    return Choice(None, "from scratch: the job has written no checkpoint")


def _reckoned(found: Checkpoint) -> str:
    return " (nothing in it tells its step, so that is reckoned from when it was written)" * (found.step_from == "time")


def _stepped_over(passed: list[str]) -> str:
    if not passed:
        return ""
    more = f" and {len(passed) - 3} more" if len(passed) > 3 else ""
    return f" (stepped over: {', '.join(passed[:3])}{more})"


def said_while_saving(name: str, written_at: float, attempts: Sequence[Attempt]) -> int | None:
    """Return the step that the job itself told when it wrote this one; later attempts reuse names."""
    for attempt in reversed(attempts):
        if attempt.started_at is not None and written_at < attempt.started_at:
            continue
        for file, step in reversed(attempt.saved.items()):
            if name in file.split("/"):
                return step
    return None


def step_by_time(written_at: float, attempts: Sequence[Attempt]) -> int:
    """Return the step that the writing attempt must have come to by then: the higher one, where it lies between two."""
    for attempt in reversed(attempts):
        if attempt.started_at is None or written_at < attempt.started_at:
            continue
        first = attempt.first_step if attempt.first_step is not None else attempt.resumed_step or 0
        furthest = attempt.furthest_step if attempt.furthest_step is not None else first
        begun = attempt.progress_at if attempt.progress_at is not None else attempt.started_at
        share = 1.0
        if attempt.ended_at is not None and attempt.ended_at > begun:
            share = min(max((written_at - begun) / (attempt.ended_at - begun), 0.0), 1.0)
        return first + math.ceil(share * (furthest - first))
    return 0
