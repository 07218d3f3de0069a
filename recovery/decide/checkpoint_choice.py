"""Chooses the checkpoint to resume from: the newest one that is verified and older than the fault.

The job's own environment verifies checkpoints; this module only reads the verdicts. Nothing is ever deleted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rung.jobs.job import Attempt
from rung.recovery.decide.quarantine import QUARANTINED, quarantined
from rung.recovery.decide.treatments import climbs_ladder

HEALTHY = "healthy"
# The job's own environment could not read it. It can be verified again later.
UNVERIFIED = "unverified"
# Loading it would run code, or checking it would take too much. The history says which.
REFUSED = "refused"
# Whole and finite. Missing parts are reported, but the checkpoint is used.
SOUND = frozenset({HEALTHY, "needs_allow_list", "no_step"})


@dataclass(frozen=True)
class Checkpoint:
    """A file or folder that a job wrote, with its verdict. `verdict` None: not verified yet."""

    name: str
    step: int
    written_at: float
    verdict: str | None = None
    detail: str = ""
    # The host it is on, and which residence of the job there. None: where the last attempt was.
    residence: tuple[str, int] | None = None
    # Where the step comes from: a record of the job ("saved"), the "content", the "name", or the "time" of writing.
    step_from: str = "content"
    kind: str = ""
    size: int = 0


@dataclass(frozen=True)
class Choice:
    checkpoint: Checkpoint | None
    because: str


def resume_candidates(
    checkpoints: Sequence[Checkpoint], attempts: Sequence[Attempt], limit: int | None
) -> list[Checkpoint]:
    """Return the checkpoints that are old enough, newest first, whatever their verdict; some become QUARANTINED."""
    old_enough = [each for each in checkpoints if limit is None or each.step < limit]
    marks = quarantined(attempts)
    marked = [
        replace(checkpoint, verdict=QUARANTINED, detail=marks[checkpoint.name].why)
        if checkpoint.name in marks and marks[checkpoint.name].applies_to(checkpoint.written_at)
        else checkpoint
        for checkpoint in old_enough
        if not _is_tainted(checkpoint, attempts)
    ]
    return sorted(marked, key=lambda checkpoint: (checkpoint.step, checkpoint.written_at), reverse=True)


def _is_tainted(checkpoint: Checkpoint, attempts: Sequence[Attempt]) -> bool:
    """Return whether an attempt wrote this file after its numbers had gone wrong, even if all values are finite."""
    for attempt in attempts:
        began = attempt.fault.began if attempt.fault and climbs_ladder(attempt.fault) else None
        if began is None or attempt.started_at is None:
            continue
        ended = attempt.ended_at if attempt.ended_at is not None else float("inf")
        if began <= checkpoint.step and attempt.started_at <= checkpoint.written_at <= ended:
            return True
    return False


def choose_checkpoint(checkpoints: Sequence[Checkpoint], attempts: Sequence[Attempt], limit: int | None) -> Choice:
    """Return the newest sound checkpoint older than `limit`, and why it is that one."""
    passed: list[str] = []
    for checkpoint in resume_candidates(checkpoints, attempts, limit):
        if checkpoint.verdict in SOUND:
            older = f"older than step {limit}" if limit is not None else "the newest"
            notes = _step_is_estimated(checkpoint) + _passed_over(passed)
            return Choice(checkpoint, f"{checkpoint.name} is verified and {older}{notes}")
        why = f", {checkpoint.detail}" if checkpoint.verdict in (UNVERIFIED, QUARANTINED, REFUSED) else ""
        passed.append(f"{checkpoint.name} is {checkpoint.verdict or UNVERIFIED}{why}")
    if passed:
        return Choice(None, f"from scratch: no healthy checkpoint{_passed_over(passed)}")
    if checkpoints:
        return Choice(None, f"from scratch: no checkpoint is {f'older than step {limit}' if limit else 'worth it'}")
    return Choice(None, "from scratch: the job has written no checkpoint")


def _step_is_estimated(checkpoint: Checkpoint) -> str:
    estimated = checkpoint.step_from == "time"
    return " (it does not state its step, which is estimated from when it was written)" if estimated else ""


def _passed_over(passed: list[str]) -> str:
    if not passed:
        return ""
    more = f" and {len(passed) - 3} more" if len(passed) > 3 else ""
    return f" (stepped over: {', '.join(passed[:3])}{more})"


def recorded_step(name: str, written_at: float, attempts: Sequence[Attempt]) -> int | None:
    """Return the step that the job recorded when it wrote this file; later attempts reuse names."""
    for attempt in reversed(attempts):
        if attempt.started_at is not None and written_at < attempt.started_at:
            continue
        for file, step in reversed(attempt.saved.items()):
            if name in file.split("/"):
                return step
    return None


def estimated_step(written_at: float, attempts: Sequence[Attempt]) -> int:
    """Return the step that the attempt had reached when it wrote the file, rounded up."""
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
