"""Writes the changes of a job's state: the state, the attempt and the events, in one transaction each.

It only writes. It does not observe, decide, start or stop anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rung.jobs.job import Attempt, Job, Outcome, Verdict, beside_last
from rung.jobs.model.event import EventKind
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.runner.state.store import Orphan, Store

BY_A_PERSON = "cancelled by a person"
WORD_EVENTS = {
    Verdict.SURVIVED: EventKind.SURVIVED,
    Verdict.RECOVERED: EventKind.RECOVERED,
    Verdict.NOT_LEARNING: EventKind.NOT_LEARNING,
}


def retried(
    store: Store, job: Job, knobs: Knobs, about: Mapping[str, Any], edited: Sequence[str | None], *, at: float
) -> Job:
    """Queue an ended job again; `about` is kept in its history, `edited` are its new spec and its folder, or None."""
    store.reopen(job.id, knobs, len(store.attempts(job.id)), edited)
    changes = {name: list(pair) for name, pair in knobs.changes_from(job.knobs).items()}
    store.add_event(job.id, None, EventKind.RETRIED, {"knobs": changes, **about}, at=at)
    # FAILED or CANCELLED -> QUEUED: a person asked for another try
    return store.move(job.id, JobState.QUEUED, reason="retried by a person", at=at)


def gave_up_hosts(store: Store, job: Job) -> bool:
    """Tell whether the person who last retried a job gave up the hosts that did not answer then."""
    retries = [event.data for event in store.events(job.id) if event.kind == EventKind.RETRIED]
    return bool(retries) and bool(retries[-1].get("give_up_hosts"))


def cancel_requested(store: Store, job: Job, *, at: float) -> None:
    store.request_cancel(job.id)
    store.add_event(job.id, None, EventKind.CANCEL_REQUESTED, {}, at=at)
    if job.state is JobState.QUEUED:
        # QUEUED -> CANCELLED: nothing has been started
        store.move(job.id, JobState.CANCELLED, reason="cancelled before it started", at=at)


def launching(store: Store, job: Job, attempt: Attempt, *, at: float) -> None:
    with store.transaction():
        if store.job(job.id).state is not JobState.QUEUED:
            return  # cancelled a moment ago
        store.put_attempt(attempt)
        store.lease(attempt, at=at)
        data: dict[str, Any] = {"because": attempt.because, "checkpoint": attempt.resumed_from}
        if attempt.is_remote or attempt.gpus:
            data |= attempt.where_data
        store.add_event(job.id, attempt.number, EventKind.DECIDED, data, at=at)
        # QUEUED -> LAUNCHING: there is room for it
        store.move(job.id, JobState.LAUNCHING, reason=attempt.because, at=at)


def started(store: Store, attempt: Attempt, how: Mapping[str, Any]) -> None:
    """Record that the engine runs the attempt, and how; the job stays LAUNCHING until it shows progress."""
    assert attempt.started_at is not None
    with store.transaction():
        store.put_attempt(attempt)
        store.add_event(attempt.job_id, attempt.number, EventKind.STARTED, how, at=attempt.started_at)


def not_started(store: Store, job: Job, attempt: Attempt, why: str, *, at: float) -> None:
    with store.transaction():
        store.put_attempt(replace(attempt, outcome=Outcome.FAULT, ended_at=at))
        # LAUNCHING -> FAILED: the engine could not start it
        store.move(job.id, JobState.FAILED, reason=why, at=at)


def refused(store: Store, job: Job, why: str, *, at: float) -> None:
    with store.transaction():
        if store.job(job.id).state is JobState.QUEUED:
            # QUEUED -> FAILED: no GPU that it accepts can run its image, or no site can run the job
            store.move(job.id, JobState.FAILED, reason=why, at=at)


def out_of_reach(store: Store, attempt: Attempt, why: str, *, at: float) -> Attempt:
    """Record since when the host has not answered; nothing else changes."""
    away = replace(attempt, unreachable_since=at)
    with store.transaction():
        store.put_attempt(away)
        store.add_event(attempt.job_id, attempt.number, EventKind.UNREACHABLE, {"because": why}, at=at)
    return away


def answers_again(store: Store, attempt: Attempt, away: float, *, at: float) -> Attempt:
    """Record that the host answers, after `away` seconds that this controller has counted."""
    back = replace(attempt, unreachable_since=None)
    with store.transaction():
        store.put_attempt(back)
        because = f"{attempt.where} {'answer' if attempt.members else 'answers'} again after {away:.0f} s"
        store.add_event(attempt.job_id, attempt.number, EventKind.REACHABLE, {"because": because}, at=at)
        store.set_reason(attempt.job_id, because)
    return back


def host_lost(store: Store, job: Job, attempt: Attempt, away: float, *, at: float) -> None:
    """Give up an attempt whose host stays unreachable. Its GPUs stay leased until the host has been asked."""
    evidence = f"{attempt.some_host} has been unreachable for {away:.0f} s, longer than recovery.host_lost_after"
    fault = attempt.fault or Fault(FaultKind.INFRA_FAULT, evidence, step=attempt.furthest_step)
    lost = replace(attempt, fault=fault, host_lost=True, ended_at=at, outcome=Outcome.FAULT)
    with store.transaction():
        store.put_attempt(lost)
        store.give_up(lost, at=at)
        store.add_event(job.id, attempt.number, EventKind.HOST_LOST, {"because": evidence}, at=at)
        if attempt.fault is None:
            store.add_event(job.id, attempt.number, EventKind.FAULT, fault.to_dict(), at=at)
        record_end(store, lost, Outcome.FAULT, at=at)
        lose_beside(store, job, fault, at=at)
        if not job.cancel_requested:
            # LAUNCHING, RUNNING or STOPPING -> RECOVERING: its host is lost
            store.move(job.id, JobState.RECOVERING, reason=evidence, at=at)
            return
        if job.state is not JobState.STOPPING:
            # LAUNCHING or RUNNING -> STOPPING: nothing could be stopped
            store.move(job.id, JobState.STOPPING, reason=BY_A_PERSON, at=at)
        # STOPPING -> CANCELLED: as a person asked; what still runs there is ended when the host answers
        store.move(job.id, JobState.CANCELLED, reason=f"{BY_A_PERSON}; {evidence}", at=at)


def lose_beside(store: Store, job: Job, fault: Fault, *, at: float) -> None:
    """Give up the trials beside the last attempt; part of a transaction."""
    for trial in beside_last(store.attempts(job.id)):
        lost = replace(trial, fault=fault, host_lost=True, ended_at=at, outcome=Outcome.FAULT)
        store.put_attempt(lost)
        store.give_up(lost, at=at)
        record_end(store, lost, Outcome.FAULT, at=at)


def orphan_gone(store: Store, orphan: Orphan, how: str, *, at: float) -> None:
    """Record that a lost attempt is certainly gone from its host; only now its GPUs are free."""
    with store.transaction():
        store.remove_orphan(orphan)
        attempt = store.attempts(orphan.job_id)[orphan.attempt - 1]
        why = "its host was away" if attempt.host_lost else "it ran beside another one, and the job ended"
        because = f"attempt {orphan.attempt} on {orphan.host}, given up while {why}: {how}"
        store.add_event(orphan.job_id, orphan.attempt, EventKind.STALE_GONE, {"because": because}, at=at)


def running(store: Store, job: Job, attempt: Attempt, *, at: float) -> None:
    with store.transaction():
        # LAUNCHING -> RUNNING: the first proof of progress
        proof = f"step {attempt.first_step}" if attempt.first_step is not None else "its first loss"
        store.move(job.id, JobState.RUNNING, reason=attempt.not_resumed or f"{proof} was seen", at=at)


def not_taken(store: Store, attempt: Attempt, ignored: Mapping[str, tuple[Any, Any]], *, at: float) -> None:
    """Record, once per attempt, the knobs whose live values differ from what was asked."""
    with store.transaction():
        data = {name: {"asked": asked, "effective": live} for name, (asked, live) in ignored.items()}
        _add_once(store, attempt, EventKind.NOT_TAKEN, data, at=at)


def progressed(store: Store, before: Attempt, attempt: Attempt, *, at: float) -> None:
    """Record once per attempt what new progress shows that was not planned, and show it as the job's reason."""
    for kind, because in attempt.doubts.items():
        if kind not in before.doubts:
            with store.transaction():
                if _add_once(store, attempt, kind, {"because": because}, at=at):
                    store.set_reason(attempt.job_id, because)


def sampled(store: Store, attempt: Attempt, because: str, *, at: float) -> None:
    """Record, once per attempt, that numbers of its log were left out."""
    with store.transaction():
        _add_once(store, attempt, EventKind.SAMPLED, {"because": because}, at=at)


def _add_once(store: Store, attempt: Attempt, kind: EventKind, data: Mapping[str, Any], *, at: float) -> bool:
    """Add an event if the attempt has none of its kind; return whether it was added."""
    is_new = attempt.number not in (event.attempt for event in store.events(attempt.job_id) if event.kind == kind)
    if is_new:
        store.add_event(attempt.job_id, attempt.number, kind, data, at=at)
    return is_new


def judged(store: Store, attempt: Attempt, word: Verdict, because: str, *, at: float) -> None:
    """Write the word for a run after its fault, with the readings that show it."""
    with store.transaction():
        store.put_attempt(replace(attempt, verdict=word, verdict_why=because))
        store.add_event(attempt.job_id, attempt.number, WORD_EVENTS[word], {"because": because}, at=at)


def stopping_for_fault(store: Store, job: Job, attempt: Attempt, fault: Fault, *, at: float) -> None:
    with store.transaction():
        store.put_attempt(attempt)
        store.add_event(job.id, attempt.number, EventKind.FAULT, fault.to_dict(), at=at)
        # LAUNCHING or RUNNING -> STOPPING: a fault was found while it runs
        store.move(job.id, JobState.STOPPING, reason=f"{fault.kind}: {fault.evidence}", at=at)


def stopping_to_step_back(store: Store, job: Job, attempt: Attempt, because: str, *, at: float) -> None:
    with store.transaction():
        store.add_event(job.id, attempt.number, EventKind.STEPPING_BACK, {"because": because}, at=at)
        # RUNNING -> STOPPING: clean for long enough to try what is faster, or the first lr, again
        store.move(job.id, JobState.STOPPING, reason=because, at=at)


def stopping_at_level(store: Store, job: Job, attempt: Attempt, because: str, *, at: float) -> None:
    with store.transaction():
        store.put_attempt(attempt)
        store.add_event(job.id, attempt.number, EventKind.LEVEL, {"because": because}, at=at)
        # RUNNING -> STOPPING: its loss is level after a cure, so a lower lr is tried
        store.move(job.id, JobState.STOPPING, reason=because, at=at)


def stopped_in_health(store: Store, job: Job, attempt: Attempt, *, at: float) -> None:
    with store.transaction():
        store.put_attempt(replace(attempt, outcome=Outcome.STOPPED))
        record_end(store, attempt, Outcome.STOPPED, at=at)
        # STOPPING -> RECOVERING: stopped in good health, to step back or to try a lower lr
        store.move(job.id, JobState.RECOVERING, reason=job.reason, at=at)


def interrupted(store: Store, job: Job, attempt: Attempt, why: str, *, at: float) -> None:
    with store.transaction():
        store.put_attempt(replace(attempt, outcome=Outcome.INTERRUPTED))
        store.add_event(job.id, attempt.number, EventKind.INTERRUPTED, {"because": why}, at=at)
        record_end(store, attempt, Outcome.INTERRUPTED, at=at)
        # LAUNCHING or RUNNING -> RECOVERING: its site has ended a healthy run
        store.move(job.id, JobState.RECOVERING, reason=f"interrupted: {why}", at=at)


def stopping_for_person(store: Store, job: Job, *, at: float) -> None:
    with store.transaction():
        # LAUNCHING or RUNNING -> STOPPING: a person cancelled it
        store.move(job.id, JobState.STOPPING, reason=BY_A_PERSON, at=at)


def recovering(store: Store, job: Job, attempt: Attempt, fault: Fault, *, fault_recorded: bool, at: float) -> None:
    """End an attempt with a fault; `fault_recorded`: the event was written when the attempt was stopped."""
    with store.transaction():
        store.put_attempt(replace(attempt, outcome=Outcome.FAULT))
        if not fault_recorded:
            store.add_event(job.id, attempt.number, EventKind.FAULT, fault.to_dict(), at=at)
        record_end(store, attempt, Outcome.FAULT, at=at)
        # LAUNCHING, RUNNING or STOPPING -> RECOVERING: the process is gone, with a fault
        store.move(job.id, JobState.RECOVERING, reason=f"{fault.kind}: {fault.evidence}", at=at)


def succeeded(store: Store, job: Job, attempt: Attempt, *, at: float) -> None:
    known = {event.kind for event in store.events(job.id) if event.attempt == attempt.number}
    with store.transaction():
        if attempt.verdict is not None and attempt.verdict.value not in known:
            data = {"because": attempt.verdict_why}
            store.add_event(job.id, attempt.number, WORD_EVENTS[attempt.verdict], data, at=at)
        store.put_attempt(replace(attempt, outcome=Outcome.SUCCEEDED))
        record_end(store, attempt, Outcome.SUCCEEDED, at=at)
        # LAUNCHING, RUNNING or STOPPING -> SUCCEEDED: exit code 0 and what was asked of it
        store.move(job.id, JobState.SUCCEEDED, reason=_finished(job, attempt), at=at)


def _finished(job: Job, attempt: Attempt) -> str:
    wanted = job.spec.success.metric if job.spec.success else None
    ended = f"finished with {wanted} {attempt.metrics[wanted]:.4g}" if wanted else "finished"
    return f"{ended}; {attempt.verdict}: {attempt.verdict_why}" if attempt.verdict else ended


def fell_short(store: Store, job: Job, attempt: Attempt, missing: str, *, at: float) -> None:
    with store.transaction():
        store.put_attempt(replace(attempt, outcome=Outcome.FELL_SHORT))
        record_end(store, attempt, Outcome.FELL_SHORT, at=at)
        # LAUNCHING, RUNNING or STOPPING -> FAILED: exit code 0 is not success by itself
        store.move(job.id, JobState.FAILED, reason=f"it exited with 0, but {missing}", at=at)


def cancelled(store: Store, job: Job, attempt: Attempt, *, at: float) -> None:
    with store.transaction():
        store.put_attempt(replace(attempt, outcome=Outcome.CANCELLED, ended_at=attempt.ended_at or at))
        record_end(store, attempt, Outcome.CANCELLED, at=at)
        if job.state is not JobState.STOPPING:
            # LAUNCHING or RUNNING -> STOPPING: nothing was left to stop
            store.move(job.id, JobState.STOPPING, reason=BY_A_PERSON, at=at)
        # STOPPING -> CANCELLED: the process is gone, as a person asked
        store.move(job.id, JobState.CANCELLED, reason=BY_A_PERSON, at=at)


def cancelled_between(store: Store, job: Job, *, at: float) -> None:
    with store.transaction():
        # RECOVERING -> CANCELLED: a person cancelled it between two attempts
        store.move(job.id, JobState.CANCELLED, reason=BY_A_PERSON, at=at)


def record_end(store: Store, attempt: Attempt, outcome: Outcome, *, at: float) -> None:
    if attempt.saturation is not None and attempt.saturation.warning:
        _add_once(store, attempt, EventKind.SATURATED, {"because": attempt.saturation.warning}, at=at)
    data = {"outcome": outcome, "exit_code": attempt.exit_code, "furthest_step": attempt.furthest_step}
    store.add_event(attempt.job_id, attempt.number, EventKind.ENDED, data, at=at)
