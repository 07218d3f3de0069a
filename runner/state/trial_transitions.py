"""Writes what happens to trials: the attempt, the events and the state of the job, in one transaction each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from rung.jobs.job import Attempt, Job, Outcome
from rung.jobs.model.event import EventKind
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.state import JobState
from rung.recovery.trials.judge import table
from rung.recovery.trials.own_run import is_own_run
from rung.recovery.trials.winner import why_won
from rung.runner.state.store import Orphan, Store
from rung.runner.state.transitions import lose_beside, record_end


def stopping(store: Store, job: Job, attempt: Attempt, *, at: float) -> None:
    assert attempt.trial is not None
    with store.transaction():
        store.put_attempt(attempt)
        # RUNNING -> STOPPING: the trial is over
        reason = f"the trial of {attempt.trial.candidate.label} is over: {attempt.trial.verdict}"
        store.move(job.id, JobState.STOPPING, reason=reason, at=at)


def over(store: Store, job: Job, attempt: Attempt, *, at: float) -> None:
    """Record the end of a trial. Its fault is that of the candidate, and no fault of the job's own run."""
    assert attempt.trial is not None
    with store.transaction():
        _put_end(store, attempt, at=at)
        reason = f"the trial of {attempt.trial.candidate.label} is over: {attempt.trial.verdict}"
        # LAUNCHING, RUNNING or STOPPING -> RECOVERING: the next trial, or the decision
        store.move(job.id, JobState.RECOVERING, reason=reason, at=at)


def _put_end(store: Store, attempt: Attempt, *, at: float) -> None:
    outcome = Outcome.FAULT if attempt.fault else Outcome.STOPPED
    store.put_attempt(replace(attempt, outcome=outcome))
    record_end(store, attempt, outcome, at=at)


def over_beside(store: Store, attempt: Attempt, *, at: float) -> None:
    """Record the end of a trial that ran beside the last attempt: its GPUs are free, and the job's state stays."""
    with store.transaction():
        _put_end(store, attempt, at=at)
        store.remove_orphan(Orphan(attempt.job_id, attempt.number, attempt.host, at))


def fault_beside(store: Store, attempt: Attempt, *, at: float) -> None:
    """Record the fault of a trial beside the last attempt; it is stopped."""
    assert attempt.fault is not None
    with store.transaction():
        store.put_attempt(attempt)
        store.add_event(attempt.job_id, attempt.number, EventKind.FAULT, attempt.fault.to_dict(), at=at)


def trials_lost(store: Store, job: Job, away: float, *, at: float) -> None:
    """Give up the trials beside the last attempt, which has ended, with their host: they begin anew elsewhere."""
    last = store.attempts(job.id)[-1]
    evidence = f"{last.host} has been unreachable for {away:.0f} s, longer than recovery.host_lost_after"
    with store.transaction():
        store.put_attempt(replace(last, host_lost=True))
        store.add_event(job.id, last.number, EventKind.HOST_LOST, {"because": evidence}, at=at)
        lose_beside(store, job, Fault(FaultKind.INFRA_FAULT, evidence), at=at)


def won(store: Store, attempt: Attempt, others: Sequence[Attempt], *, at: float) -> Attempt:
    """Make a running trial the job's own run: the last one, which no other one beats."""
    assert attempt.trial is not None
    trial = replace(attempt.trial, won=True, goes_on=True)
    winner = replace(attempt, trial=trial, tried_until=trial.until)
    data = trials_data([*others, winner], winner)
    with store.transaction():
        store.put_attempt(winner)
        store.add_event(attempt.job_id, attempt.number, EventKind.TRIALS, data, at=at)
        store.set_reason(attempt.job_id, str(data["because"]))
    return winner


def record_table(store: Store, trials: Sequence[Attempt], winner: Attempt | None, *, at: float) -> None:
    """Write the table of trials that are over; part of the transaction of the decision that they lead to."""
    last = trials[-1]
    store.add_event(last.job_id, last.number, EventKind.TRIALS, trials_data(trials, winner), at=at)
    if winner is not None and winner.trial is not None and not is_own_run(winner):
        store.put_attempt(replace(winner, trial=replace(winner.trial, won=True)))


def folder_removed(store: Store, attempt: Attempt) -> None:
    """Record that the folder of a trial is gone."""
    (now,) = (each for each in store.attempts(attempt.job_id) if each.number == attempt.number)
    assert now.trial is not None
    with store.transaction():
        store.put_attempt(replace(now, trial=replace(now.trial, folder_removed=True)))


def trials_data(trials: Sequence[Attempt], winner: Attempt | None) -> dict[str, Any]:
    because = why_won(winner, trials) if winner else "no candidate got past the fault"
    return {"because": because, "table": [asdict(row) for row in table(trials, winner)]}
