"""Owns the nouns of the history: a `Job` and its `Attempt`s, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from rung.jobs.model.errors import TransitionError
from rung.jobs.model.fault import Fault
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import ENDED, TRANSITIONS, JobState
from rung.jobs.spec.job_spec import JobSpec


@dataclass(frozen=True)
class Job:
    """One thing a person asked to be trained, whatever number of attempts it takes."""

    id: str
    spec: JobSpec
    state: JobState
    reason: str
    created_at: float
    updated_at: float
    # The knobs as a person set them: the spec's, or those of the last `rung retry --set`.
    knobs: Knobs
    # Attempts up to this number belong to an earlier try that a person has looked at; budgets count from here.
    settled: int = 0
    cancel_requested: bool = False

    @property
    def ended(self) -> bool:
        return self.state in ENDED


def advance(job: Job, to: JobState, *, reason: str, at: float) -> Job:
    """Return the job in its new state; the only way a job changes state."""
    if to not in TRANSITIONS[job.state]:
        raise TransitionError(f"job {job.id}: {job.state} -> {to} is not a known transition ({reason})")
    return replace(job, state=to, reason=reason, updated_at=at)


class Outcome(StrEnum):
    """How an attempt ended, in the engine's and the log's words."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAULT = "fault"
    FELL_SHORT = "fell_short"
    CANCELLED = "cancelled"
    # In good health, by Rung itself, to try a faster precision or the first lr again.
    STOPPED = "stopped"


@dataclass(frozen=True)
class Attempt:
    """One launch of a job: what was asked, what came of it, and why it was made."""

    job_id: str
    number: int
    host: str
    asked: Knobs
    rung: str | None
    because: str
    by_person: bool = False
    # Rungs that were passed over or taken back when this attempt was decided, each with its reason.
    skipped: tuple[tuple[str, str], ...] = ()
    undone: tuple[tuple[str, str], ...] = ()
    # On a host: the GPUs it has to itself, the image it runs in, and which stay of the job on this host it belongs to.
    # A job that comes back to a host begins a new one, in a new folder: what a lost attempt left there never mixes in.
    gpus: tuple[Gpu, ...] = ()
    image: str | None = None
    stay: int = 1
    resumed_from: str | None = None
    planned_step: int | None = None
    # The stay in which that checkpoint was written, when it is another one and the file has to be brought here first.
    checkpoint_from: tuple[str, int] | None = None
    # Until this moment the launch is held back (after an infra fault); None: at once.
    not_before: float | None = None
    effective: dict[str, Any] = field(default_factory=dict)
    # Checkpoints by the job's own words: file name -> step, where it said so while saving.
    saved: dict[str, int] = field(default_factory=dict)
    # Proven from the job's own words, never from the file name.
    resumed_step: int | None = None
    first_step: int | None = None
    furthest_step: int | None = None
    loss: float | None = None
    first_loss: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    # The latest lr, grad_norm, scale and terms of the loss, and the latest speed by its unit.
    latest: dict[str, float] = field(default_factory=dict)
    throughput: dict[str, float] = field(default_factory=dict)
    # The loss's level before things went wrong, the yardstick for "has it recovered".
    healthy_loss: float | None = None
    recovered: bool | None = None
    # This attempt went back to a faster precision or the original lr after a clean stretch.
    stepped_back: bool = False
    fault: Fault | None = None
    outcome: Outcome = Outcome.PENDING
    exit_code: int | None = None
    started_at: float | None = None
    progress_at: float | None = None
    ended_at: float | None = None
    # Since when the host has not answered; None while it does.
    unreachable_since: float | None = None
    # Given up because its host stayed away; whatever still runs there no longer counts.
    host_lost: bool = False

    @property
    def resume_point(self) -> int:
        """Return the step the attempt resumed at: as the job reported it, else as planned; 0 from scratch."""
        return self.resumed_step if self.resumed_step is not None else self.planned_step or 0

    @property
    def fault_step(self) -> int:
        """Return the step the attempt came to: where its fault was, or the furthest seen."""
        known = [self.furthest_step, self.fault.step if self.fault else None, self.resumed_step]
        if self.fault and self.fault.step is not None:
            return self.fault.step
        return max((step for step in known if step is not None), default=0)
