"""The states of a job, and which state may follow which."""

from __future__ import annotations

from enum import StrEnum


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

# Few states, many reasons: why a job is in a state is in `Job.reason`, never in a new state.
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _S.QUEUED: frozenset({_S.LAUNCHING, _S.FAILED, _S.CANCELLED}),
    _S.LAUNCHING: frozenset({_S.RUNNING, _S.RECOVERING, _S.STOPPING, _S.SUCCEEDED, _S.FAILED}),
    _S.RUNNING: frozenset({_S.RECOVERING, _S.STOPPING, _S.SUCCEEDED, _S.FAILED}),
    _S.STOPPING: frozenset({_S.RECOVERING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.RECOVERING: frozenset({_S.LAUNCHING, _S.FAILED, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    # A person may start a job again: rung retry.
    _S.FAILED: frozenset({_S.QUEUED}),
    _S.CANCELLED: frozenset({_S.QUEUED}),
}

ENDED = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})
