"""Carries out a decision: writes the next attempt and its reasons before anything is started.

This is the only place that turns a Decision into a change of the store. The controller starts the attempt in its next
turn, so that a controller that is killed in between finds it written and not started, and starts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from rung.jobs.job import Attempt, Job, Outcome, beside_last, main_line
from rung.jobs.model.engine import PROCESS, EngineKind, PlacedBy
from rung.jobs.model.event import EventKind
from rung.jobs.model.fault import Fault
from rung.jobs.model.gpu import Gpu, Member
from rung.jobs.model.state import JobState
from rung.recovery.decide.checkpoint_choice import Checkpoint, Sighting, choose_checkpoint
from rung.recovery.decide.decide import Decision, Relaunch, Stop
from rung.recovery.decide.resume_limit import resume_limit
from rung.recovery.logs.tracker_links import mlflow_run
from rung.runner.state.store import Store


@dataclass(frozen=True)
class Placement:
    """Where an attempt is to run: this machine, or a host with some of its GPUs and an image."""

    host: str
    gpus: tuple[Gpu, ...] = ()
    image: str | None = None
    residence: int = 1
    engine: EngineKind = PROCESS
    # The other hosts, where it runs on several.
    members: tuple[Member, ...] = ()

    @property
    def nodes(self) -> int:
        return 1 + len(self.members)


def same_placement(last: Attempt) -> Placement:
    # A site chooses anew.
    gpus = last.gpus if last.engine.placed_by is PlacedBy.RUNG else ()
    return Placement(last.host, gpus, last.image, last.residence, last.engine, last.members)


def next_residence(attempts: Sequence[Attempt], host: str) -> int:
    """Return the residence of the next attempt on a host: the last one, or a new one when the job changes hosts."""
    if not attempts:
        return 1
    last = main_line(attempts)[-1]
    stays = last.host == host and not last.host_lost
    return last.residence if stays else new_residence(attempts)


def new_residence(attempts: Sequence[Attempt]) -> int:
    return max(each.residence for each in attempts) + 1


def asked_by_person(
    job: Job,
    attempts: Sequence[Attempt],
    checkpoints: Sequence[Sighting],
    placement: Placement,
    because: str = "as submitted",
) -> Attempt:
    """Return the attempt that a person requested: as submitted, or a retry from the last healthy checkpoint."""
    where: dict[str, Any] = {
        "host": placement.host,
        "gpus": placement.gpus,
        "image": placement.image,
        "residence": placement.residence,
        "engine": placement.engine,
        "members": placement.members,
        "nodes": placement.nodes,
    }
    if not attempts:
        # Those that came with the job: `rung launch --from`.
        found = next((each for each in checkpoints if isinstance(each, Checkpoint)), None)
        begins = f"{because}; it begins at step {found.step}, from {found.name}" if found else because
        where |= _resumed(found, placement)
        return Attempt(job_id=job.id, number=1, asked=job.knobs, rung=None, because=begins, by_person=True, **where)
    line = main_line(attempts)
    choice = choose_checkpoint(checkpoints, line, resume_limit(line, job.knobs))
    return Attempt(
        job_id=job.id,
        number=len(attempts) + 1,
        asked=job.knobs,
        rung=None,
        because=f"a person asked for another try; {choice.because}",
        by_person=True,
        **_resumed(choice.checkpoint, placement),
        **where,
    )


def _resumed(found: Checkpoint | None, placement: Placement) -> dict[str, Any]:
    """Return the fields of an attempt for the checkpoint it resumes from, and where that must be brought from."""
    if found is None:
        return {}
    elsewhere = found.residence if found.residence != (placement.host, placement.residence) else None
    return {"resumed_from": found.name, "planned_step": found.step, "checkpoint_from": elsewhere}


def next_attempt(job: Job, number: int, placement: Placement, decision: Relaunch, at: float) -> Attempt:
    return Attempt(
        job_id=job.id,
        number=number,
        host=placement.host,
        gpus=placement.gpus,
        image=placement.image,
        residence=placement.residence,
        engine=placement.engine,
        members=placement.members,
        nodes=placement.nodes,
        asked=decision.knobs,
        rung=decision.rung.value if decision.rung else None,
        because=decision.because,
        skipped=decision.skipped,
        undone=decision.undone,
        not_before=at + decision.delay if decision.delay else None,
        stepped_back=decision.stepped_back,
        trial=decision.trial,
        left_alone=decision.left_alone,
        tried_until=decision.tried_until,
        **_resumed(decision.checkpoint, placement),
    )


def _with_trackers(attempt: Attempt, attempts: Sequence[Attempt]) -> Attempt:
    """Return an attempt with what its trackers are told: the fault before it, and the run that it may go on with.

    That is the run in MLflow of an attempt with the same knobs. After trials the curves begin again where the trials
    began: the last one to write there need not be the one that has won.
    """
    before = main_line(attempts)[-1]
    same = attempt.trial is None and attempt.asked == before.asked
    run = mlflow_run(before.links, before.mlflow_run) if same else None
    after_fault = before.fault.kind.value if before.fault else None
    return replace(attempt, after_fault=after_fault, mlflow_run=run, purge_step=purge_step(attempt, attempts))


def purge_step(attempt: Attempt, attempts: Sequence[Attempt]) -> int | None:
    """Return the step where trials right before an attempt began; None if there were none, or it is a trial itself."""
    trials = list(takewhile(lambda each: each.is_trial, reversed(attempts)))
    if attempt.trial is not None or not trials:
        return None
    return min(each.planned_step or 0 for each in (*trials, attempt))


def carry_out(store: Store, job: Job, decision: Decision, placement: Placement, *, at: float) -> None:
    """Write the decision, the change of state and the lease of the GPUs in one transaction."""
    with store.transaction():
        write_decision(store, job, decision, placement, at=at)


def write_decision(store: Store, job: Job, decision: Decision, placement: Placement, *, at: float) -> None:
    """Write a decision; part of a transaction."""
    attempts = store.attempts(job.id)
    last = attempts[-1]
    if isinstance(decision, Stop):
        diagnosis = decision.diagnosis + _not_resumed(last)
        data = {"diagnosis": diagnosis, "skipped": dict(decision.skipped)}
        store.add_event(job.id, last.number, EventKind.STOPPED, data, at=at)
        # RECOVERING -> FAILED: no rung is left
        store.move(job.id, JobState.FAILED, reason=diagnosis, at=at)
        return
    decision = replace(decision, because=decision.because + _not_resumed(last))
    if last.stepped_back and decision.knobs == last.asked:
        # After a fault of the machine, the same step back is tried again.
        decision = replace(decision, stepped_back=True)
    if main_line(attempts)[-1].left_alone:
        decision = replace(decision, left_alone=True)
    if decision.trial is not None:
        # A folder of its own, so that the job's checkpoints stay as they are.
        placement = replace(placement, residence=new_residence(attempts))
    attempt = _with_trackers(next_attempt(job, last.number + 1, placement, decision, at), attempts)
    store.put_attempt(attempt)
    store.lease(attempt, at=at, beside=bool(beside_last([*attempts, attempt])))
    store.add_event(job.id, attempt.number, EventKind.DECIDED, _decision_data(decision, last, attempt), at=at)
    # RECOVERING -> LAUNCHING: a rung was chosen
    store.move(job.id, JobState.LAUNCHING, reason=decision.because, at=at)


def write_fault(store: Store, last: Attempt, fault: Fault, *, at: float) -> None:
    """Write that the last of several interruptions is a fault. A later turn decides about it as about any other."""
    with store.transaction():
        store.put_attempt(replace(last, fault=fault, outcome=Outcome.FAULT))
        store.add_event(last.job_id, last.number, EventKind.FAULT, fault.to_dict(), at=at)
        store.set_reason(last.job_id, f"{fault.kind}: {fault.evidence}")


def _not_resumed(last: Attempt) -> str:
    """Return what to add to a reason when the attempt before did not go on from its checkpoint."""
    return f"; in attempt {last.number}, {last.not_resumed}" if last.not_resumed else ""


def write_beside(store: Store, job: Job, decision: Relaunch, placement: Placement, *, at: float) -> None:
    """Write a trial that runs beside the one that is written after it; part of the same transaction."""
    attempts = store.attempts(job.id)
    placement = replace(placement, residence=new_residence(attempts))
    attempt = _with_trackers(next_attempt(job, attempts[-1].number + 1, placement, decision, at), attempts)
    store.put_attempt(attempt)
    store.lease(attempt, at=at, beside=True)
    data = _decision_data(decision, attempts[-1], attempt)
    store.add_event(job.id, attempt.number, EventKind.DECIDED, data, at=at)


def _decision_data(decision: Relaunch, last: Attempt, attempt: Attempt) -> dict[str, object]:
    data: dict[str, object] = {
        "rung": decision.rung,
        "because": decision.because,
        "knobs": {name: list(pair) for name, pair in decision.knobs.changes_from(last.asked).items()},
        "checkpoint": decision.checkpoint.name if decision.checkpoint else None,
        "skipped": dict(decision.skipped),
        "undone": dict(decision.undone),
    }
    if not (attempt.is_remote or attempt.gpus):
        return data
    return {**data, **attempt.where_data}
