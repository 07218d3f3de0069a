"""A `Job` and its `Attempt`s, as frozen data: what the history is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rung.jobs.model.engine import PROCESS, EndedBy, EngineKind, FilesAt
from rung.jobs.model.errors import TransitionError
from rung.jobs.model.event import EventKind
from rung.jobs.model.fault import Fault
from rung.jobs.model.gpu import Gpu, Member
from rung.jobs.model.hands import describe_no_hands
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.saturation import Saturation
from rung.jobs.model.state import ENDED, TRANSITIONS, JobState
from rung.jobs.model.trial import Trial
from rung.jobs.spec_text import ShownSpec, SpecText, parsed_when_read, shown_of

if TYPE_CHECKING:
    from rung.jobs.spec.job_spec import JobSpec

# A run that begins before this share of the step it was to resume at has not loaded its checkpoint.
ABOUT_THERE = 0.9


@parsed_when_read("spec", "refused")
@dataclass(frozen=True)
class Job:
    """One training that a person asked for, however many attempts it takes."""

    id: str
    spec: JobSpec
    state: JobState
    reason: str
    created_at: float
    updated_at: float
    # The knobs as a person set them: in the job file, or in the last `rung retry --set`.
    knobs: Knobs
    # Attempts up to this number belong to an earlier try. A person has looked at them, so budgets do not count them.
    settled: int = 0
    cancel_requested: bool = False
    # Why its stored spec cannot be launched any more; empty: it can.
    refused: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def shown(self) -> ShownSpec:
        """Return what lists and histories show of the spec, which is not parsed for it."""
        given = vars(self)["spec"]
        return given.shown if isinstance(given, SpecText) else shown_of(given)


def advance(job: Job, to: JobState, *, reason: str, at: float) -> Job:
    """Return the job in its new state; the only way a job changes state."""
    if to not in TRANSITIONS[job.state]:
        raise TransitionError(f"job {job.id}: {job.state} -> {to} is not a known transition ({reason})")
    return replace(job, state=to, reason=reason, updated_at=at)


class Outcome(StrEnum):
    """How an attempt ended."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAULT = "fault"
    FELL_SHORT = "fell_short"
    CANCELLED = "cancelled"
    # Rung stopped a healthy run: to try a faster precision or another lr, or because its trial was over.
    STOPPED = "stopped"
    # Its site ended it, at a time limit or for another job. It has no fault, and goes on from its last checkpoint.
    INTERRUPTED = "interrupted"


class Verdict(StrEnum):
    """What is known about a run after a fault."""

    SURVIVED = "survived"  # it got past the fault; whether it learns is not known
    RECOVERED = "recovered"  # it got past the fault and learns, with evidence
    NOT_LEARNING = "not_learning"  # it runs and does not learn


@dataclass(frozen=True)
class Attempt:
    """One launch of a job: what was asked, how it ended, and why it was launched."""

    job_id: str
    number: int
    host: str
    asked: Knobs
    rung: str | None
    because: str
    by_person: bool = False
    # Rungs that were skipped or undone when this attempt was decided, each with its reason.
    skipped: tuple[tuple[str, str], ...] = ()
    undone: tuple[tuple[str, str], ...] = ()
    # The GPUs that only this attempt uses; on a host its image, and the number of the job's stay on a host.
    # A job that comes back to a host starts a new stay in a new folder, apart from what a lost attempt left there.
    gpus: tuple[Gpu, ...] = ()
    image: str | None = None
    residence: int = 1
    resumed_from: str | None = None
    planned_step: int | None = None
    # The host and stay that wrote the checkpoint, if it has to be copied here first.
    checkpoint_from: tuple[str, int] | None = None
    # The launch waits until this time (after an infra fault); None: no wait.
    not_before: float | None = None
    effective: dict[str, Any] = field(default_factory=dict)
    # How often numbers that left a place did not fit FP16; None: no place has run, or nothing was reported.
    saturation: Saturation | None = None
    # Whether Rung can set knobs from inside: "" if it can, the reason if not; None: nothing is known yet.
    hands: str | None = None
    # What of a checkpoint that Rung itself saved could not be brought back; None: nothing was said.
    not_whole: str | None = None
    # Checkpoints that the job reported when it saved them: file name -> step.
    saved: dict[str, int] = field(default_factory=dict)
    # Read from the job's log, never from the file name.
    resumed_step: int | None = None
    first_step: int | None = None
    furthest_step: int | None = None
    # The steps of the whole run, where the log says it.
    total_steps: int | None = None
    loss: float | None = None
    first_loss: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    # The latest lr, grad_norm, scale and terms of the loss, and the latest speed by its unit.
    latest: dict[str, float] = field(default_factory=dict)
    throughput: dict[str, float] = field(default_factory=dict)
    # The level of the loss before the fault; a recovered run must reach it again.
    healthy_loss: float | None = None
    # Whether the loss was still falling shortly before the fault; None: there is no fault, or it is not known.
    was_falling: bool | None = None
    # What is known about the run, and the readings that show it. None: there was no fault, or it is too early.
    verdict: Verdict | None = None
    verdict_why: str = ""
    # Early warnings no longer stop it: trials have shown that no rung changes what they warn of.
    left_alone: bool = False
    # Its last losses as (step, loss), where trials compare themselves with the run as it is.
    readings: tuple[tuple[int, float], ...] = ()
    # The step at which its loss was level after a cure, so that Rung stopped it to try a lower lr.
    level_at: int | None = None
    # The trials have shown that it gets through the steps up to this one, whatever an early warning would say of them.
    tried_until: int = 0
    # This attempt went back to a faster precision or the original lr after enough clean steps.
    stepped_back: bool = False
    # The links to its runs in W&B and MLflow that its log shows.
    links: tuple[str, ...] = ()
    # The kind of the fault that it was launched after, and the run in MLflow that it may go on with.
    after_fault: str | None = None
    mlflow_run: str | None = None
    # What it is a trial of; None: the job's own run.
    trial: Trial | None = None
    fault: Fault | None = None
    outcome: Outcome = Outcome.PENDING
    exit_code: int | None = None
    started_at: float | None = None
    progress_at: float | None = None
    ended_at: float | None = None
    # The longest time between two signs of life, in seconds; None: there were too few to show a pace.
    longest_gap: float | None = None
    # Since when the host has not answered; None while it does.
    unreachable_since: float | None = None
    # Given up because its host did not come back; what still runs there does not count.
    host_lost: bool = False
    # The engine of its host, as it was when this was decided.
    engine: EngineKind = PROCESS
    # The machine that a site chose for it; None: Rung chose, or it has not started.
    node: str | None = None
    # The GPUs that its site was asked for, such as `A100:1`; None: none, or Rung leases them itself.
    gpus_asked: str | None = None
    # On how many hosts, or nodes of its site, it runs. `gpus` are those of the first one.
    nodes: int = 1
    # The other hosts of the list that it runs on, in the order of their ranks; `host` is the leading one.
    members: tuple[Member, ...] = ()
    # What ended it, where its engine can tell; None: it cannot, or Rung did.
    ended_by: EndedBy | None = None
    # The step from which on the curves of attempts before it do not count, where that is not the planned step.
    purge_step: int | None = None

    @property
    def places(self) -> tuple[Member, ...]:
        """Return all hosts that it runs on, the leading one first, each with its GPUs."""
        return (Member(self.host, self.gpus), *self.members)

    @property
    def where(self) -> str:
        """Return the names of all its hosts as text: `turing`, or `turing and pascal`."""
        return " and ".join(each.host for each in self.places)

    @property
    def some_host(self) -> str:
        """Return its host, or as text that it is one of several: `one of turing and pascal`."""
        return f"one of {self.where}" if self.members else self.host

    @property
    def where_data(self) -> dict[str, Any]:
        """Return its hosts and GPUs, for the event that says where it is to run."""
        (first, *others) = [{"host": each.host, "gpus": [gpu.uuid for gpu in each.gpus]} for each in self.places]
        return {**first, "members": others} if others else first

    @property
    def is_remote(self) -> bool:
        """Tell whether its engine and its files are reached over the connection to a host."""
        return self.engine.files is FilesAt.HOST

    @property
    def is_contained(self) -> bool:
        """Tell whether the command runs in a container, where it sees other paths."""
        return self.image is not None

    @property
    def recovered(self) -> bool:
        return self.verdict is Verdict.RECOVERED

    @property
    def is_trial(self) -> bool:
        """Tell whether this is only a trial; one that won and goes on is the job's own run."""
        return self.trial is not None and not self.trial.goes_on

    @property
    def resume_point(self) -> int:
        """Return the step the attempt resumed at: as the job reported it, else as planned; 0 from scratch."""
        return self.resumed_step if self.resumed_step is not None else self.planned_step or 0

    @property
    def seconds_of_progress(self) -> float | None:
        """Return the time from the first progress that was seen to the end of the attempt; None: not known.

        One that ended at once had ended before Rung read its log.
        """
        if self.progress_at is None or self.ended_at is None or self.ended_at <= self.progress_at:
            return None
        return self.ended_at - self.progress_at

    @property
    def not_resumed(self) -> str | None:
        """Return what shows that the script did not go on from its checkpoint; None: it did, or it is not known."""
        began = self.resumed_step if self.resumed_step is not None else self.first_step
        if self.resumed_from is None or self.planned_step is None or began is None:
            return None
        # The step of a checkpoint can be an estimate.
        if began >= ABOUT_THERE * self.planned_step - 1:
            return None
        what = f"{self.resumed_from} of step {self.planned_step}"
        if self.resumed_step is None:
            return f"{what} was given, and the first step seen is {began}: it was not loaded, or the script counts anew"
        return f"{what} was not loaded: it {'resumed' if began else 'began'} at step {began}"

    @property
    def doubts(self) -> dict[EventKind, str]:
        """Return what is not as planned while it runs, by the event that records it."""
        if not (self.hands or self.not_whole or self.saturation) and self.resumed_from is None:
            return {}  # asked for every line of every run
        found = {
            EventKind.NO_HANDS: describe_no_hands(self.hands) if self.hands else None,
            EventKind.NOT_RESUMED: self.not_resumed,
            EventKind.NOT_WHOLE: self.not_whole,
            EventKind.SATURATED: self.saturation.certain_warning if self.saturation else None,
        }
        return {kind: because for kind, because in found.items() if because}

    @property
    def made_all_steps(self) -> bool:
        """Tell whether it has made the last step of the whole run, where the log says how many there are."""
        return self.total_steps is not None and (self.furthest_step or 0) >= self.total_steps

    @property
    def fault_step(self) -> int:
        """Return the step of the fault, or the furthest step that was seen."""
        known = [self.furthest_step, self.fault.step if self.fault else None, self.resumed_step]
        if self.fault and self.fault.step is not None:
            return self.fault.step
        return max((step for step in known if step is not None), default=0)


def main_line(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the job's own runs, without the trials."""
    return [attempt for attempt in attempts if not attempt.is_trial]


def recoveries(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the job's own runs that Rung launched again, without those that go on after an interruption."""
    line = main_line(attempts)
    pairs = zip([None, *line], line, strict=False)
    return [each for before, each in pairs if not each.by_person and not goes_on_after(before)]


def goes_on_after(before: Attempt | None) -> bool:
    """Tell whether what Rung launches after this attempt only goes on, because its site had interrupted it."""
    return before is not None and before.outcome is Outcome.INTERRUPTED


def beside_last(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the trials that run beside the last attempt, on GPUs of their own."""
    return [each for each in attempts[:-1] if each.is_trial and each.outcome is Outcome.PENDING]
