"""Cancels a job or a group of jobs, and waits until their processes have ended or somebody can say why not."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from rung.jobs.job import Job
from rung.jobs.model.errors import ControllerError
from rung.runner.launch import submit
from rung.runner.session.background import LOOK_SECONDS, ensure_controller
from rung.runner.session.session import Session

# Beyond the seconds between TERM and KILL: for a controller that has just begun and reads the job's log first.
MARGIN_SECONDS = 20.0


def cancel_job(session: Session, job: Job) -> Job:
    """Return the job when it has ended, or as it is when that takes too long or nobody can end it."""
    return _wait(session, [session.cancel(job)], _goes_on(job))[0]


def begin_cancel(session: Session, job: Job) -> Job:
    """Note that a job is to end, and see to it that a controller ends it; return at once."""
    job = session.cancel(job)
    if not job.ended:
        _watched(session, _goes_on(job))
    return job


def _goes_on(job: Job) -> tuple[str, str]:
    return job.id, "the job goes on"


def cancel_group(session: Session, group: str) -> list[Job]:
    """Return the jobs of a group that were active, as `cancel_job` returns one."""
    active = submit.cancel_group(session.store, group, at=time.time())
    return _wait(session, [session.store.job(job.id) for job in active], (group, "its jobs go on"))


def _wait(session: Session, jobs: list[Job], what: tuple[str, str]) -> list[Job]:
    grace = max(job.spec.recovery.grace for job in jobs)
    deadline = time.monotonic() + grace + MARGIN_SECONDS
    # The controller goes on with it after a Ctrl-C.
    with suppress(KeyboardInterrupt):
        while not all(job.ended for job in jobs) and time.monotonic() < deadline and _watched(session, what):
            time.sleep(LOOK_SECONDS)
            jobs = [session.store.job(job.id) for job in jobs]
    return [session.store.job(job.id) for job in jobs]


def _watched(session: Session, what: tuple[str, str]) -> bool:
    """Return whether a controller runs; `what`: the job or the group, and the words for what goes on without one."""
    try:
        return ensure_controller(session.paths, os.environ)
    except ControllerError as error:
        raise ControllerError(f"{what[0]}: the cancel is noted, but {what[1]}, because {error}") from None
