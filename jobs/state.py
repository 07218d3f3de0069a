"""Owns the states of a job and the one door through which a job changes state."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from jobs.errors import TransitionError

if TYPE_CHECKING:
    from jobs.attempt import Job


class JobState(StrEnum):
    QUEUED = "QUEUED"
    LAUNCHING = "LAUNCHING"
    RUNNING = "RUNNING"
    RECOVERING = "RECOVERING"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


_S = JobState

# Few states, many reasons: the why is `Job.reason`, never a new state.
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _S.QUEUED: frozenset({_S.LAUNCHING, _S.FAILED, _S.CANCELLED}),
    _S.LAUNCHING: frozenset({_S.RUNNING, _S.RECOVERING, _S.STOPPING, _S.SUCCEEDED, _S.FAILED}),
    _S.RUNNING: frozenset({_S.RECOVERING, _S.STOPPING, _S.SUCCEEDED, _S.FAILED}),
    _S.STOPPING: frozenset({_S.RECOVERING, _S.CANCELLED}),
    _S.RECOVERING: frozenset({_S.LAUNCHING, _S.FAILED, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    # A person may take a job up again: rung retry.
    _S.FAILED: frozenset({_S.QUEUED}),
    _S.CANCELLED: frozenset({_S.QUEUED}),
}

ENDED = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})


def advance(job: Job, to: JobState, *, reason: str, at: float) -> Job:
    """Return the job in its new state; the only way a job changes state."""
    if to not in TRANSITIONS[job.state]:
        raise TransitionError(f"job {job.id}: {job.state} -> {to} is not a known transition ({reason})")
    return replace(job, state=to, reason=reason, updated_at=at)
