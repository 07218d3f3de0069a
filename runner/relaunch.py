"""Owns carrying out a decision: the next attempt is written, with its reasons, before anything is started.

The only place that turns a Decision into a change of the store. Starting is the controller's next turn, so that a
controller killed in between finds the attempt written and not started, and starts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.attempt import Attempt, Job
from jobs.knobs import Knobs
from jobs.state import JobState
from recovery.checkpoint import Checkpoint, choose
from recovery.decide import Decision, Relaunch, Stop, resume_limit
from runner.store import Store


def asked_by_person(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint], host: str) -> Attempt:
    """Return the attempt that a person asked for: as submitted, or a retry from the last healthy checkpoint."""
    if not attempts:
        return Attempt(job.id, 1, host, job.knobs, None, "as submitted", by_person=True)
    choice = choose(checkpoints, attempts, resume_limit(attempts, job.knobs))
    found = choice.checkpoint
    return Attempt(
        job_id=job.id,
        number=len(attempts) + 1,
        host=host,
        asked=job.knobs,
        rung=None,
        because=f"a person asked for another try; {choice.because}",
        by_person=True,
        resumed_from=found.name if found else None,
        planned_step=found.step if found else None,
    )


def next_attempt(job: Job, number: int, host: str, decision: Relaunch, at: float) -> Attempt:
    checkpoint = decision.checkpoint
    return Attempt(
        job_id=job.id,
        number=number,
        host=host,
        asked=decision.knobs,
        rung=decision.rung.value if decision.rung else None,
        because=decision.because,
        skipped=decision.skipped,
        undone=decision.undone,
        resumed_from=checkpoint.name if checkpoint else None,
        planned_step=checkpoint.step if checkpoint else None,
        not_before=at + decision.delay if decision.delay else None,
    )


def carry_out(store: Store, job: Job, decision: Decision, last: Attempt, *, at: float) -> None:
    """Write what was decided and the change of state it means, in one transaction."""
    with store.transaction():
        if isinstance(decision, Stop):
            skipped = dict(decision.skipped)
            store.add_event(
                job.id, last.number, "stopped", {"diagnosis": decision.diagnosis, "skipped": skipped}, at=at
            )
            # RECOVERING -> FAILED: the ladder is at its end
            store.move(job.id, JobState.FAILED, reason=decision.diagnosis, at=at)
            return
        attempt = next_attempt(job, last.number + 1, last.host, decision, at)
        store.put_attempt(attempt)
        store.add_event(job.id, attempt.number, "decided", _told(decision, last.asked), at=at)
        # RECOVERING -> LAUNCHING: a rung was chosen
        store.move(job.id, JobState.LAUNCHING, reason=decision.because, at=at)


def _told(decision: Relaunch, before: Knobs) -> dict[str, object]:
    return {
        "rung": decision.rung,
        "because": decision.because,
        "knobs": {name: list(pair) for name, pair in decision.knobs.changes_from(before).items()},
        "checkpoint": decision.checkpoint.name if decision.checkpoint else None,
        "skipped": dict(decision.skipped),
        "undone": dict(decision.undone),
    }
