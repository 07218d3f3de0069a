"""Owns the choice of the checkpoint to resume from: the newest one that is verified and older than the fault.

Verifying is the job's own environment's work; here are only the verdicts. Nothing is ever deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.attempt import Attempt
from jobs.fault import Fault
from recovery.faults import TREATMENTS, Budget

HEALTHY = "healthy"
# The job's own environment could not look into it: nothing is known, and it may be asked again another time.
UNVERIFIED = "unverified"


@dataclass(frozen=True)
class Checkpoint:
    """A file a job left, with what its own environment said of it. `verdict` None: not looked at yet."""

    name: str
    step: int
    written_at: float
    verdict: str | None = None
    detail: str = ""
    # The stay it lies in: a host, and which stay of the job there. None: where the last attempt was.
    stay: tuple[str, int] | None = None


@dataclass(frozen=True)
class Choice:
    checkpoint: Checkpoint | None
    because: str


def usable(checkpoints: Sequence[Checkpoint], attempts: Sequence[Attempt], limit: int | None) -> list[Checkpoint]:
    """Return the checkpoints that are old enough, newest first, whatever their verdict."""
    fit = [found for found in checkpoints if (limit is None or found.step < limit) and not _tainted(found, attempts)]
    return sorted(fit, key=lambda found: (found.step, found.written_at), reverse=True)


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
    """Return the newest healthy checkpoint older than `limit`, and the sentence that says why it is that one."""
    passed: list[str] = []
    for found in usable(checkpoints, attempts, limit):
        if found.verdict == HEALTHY:
            older = f"older than step {limit}" if limit is not None else "the newest"
            return Choice(found, f"{found.name} is verified and {older}{_stepped_over(passed)}")
        why = f", {found.detail}" if found.verdict == UNVERIFIED else ""
        passed.append(f"{found.name} is {found.verdict or UNVERIFIED}{why}")
    if passed:
        return Choice(None, f"from scratch: no healthy checkpoint{_stepped_over(passed)}")
    if checkpoints:
        return Choice(None, f"from scratch: no checkpoint is older than step {limit}")
    return Choice(None, "from scratch: the job has written no checkpoint")


def _stepped_over(passed: list[str]) -> str:
    if not passed:
        return ""
    more = f" and {len(passed) - 3} more" if len(passed) > 3 else ""
    return f" (stepped over: {', '.join(passed[:3])}{more})"
