"""Cancels a job, and waits until its processes have ended or somebody can say why not."""

from __future__ import annotations

import os
import time

from rung.jobs.job import Job
from rung.jobs.model.errors import ControllerError
from rung.runner.session.background import LOOK_SECONDS, ensure_controller
from rung.runner.session.session import Session

# Beyond the seconds between TERM and KILL: for a controller that has just begun and reads the job's log first.
MARGIN_SECONDS = 20.0


def cancel_job(session: Session, job: Job) -> Job:
    """Return the job when it has ended, or as it is when that takes too long or nobody can end it."""
    job = begin_cancel(session, job)
    deadline = time.monotonic() + job.spec.recovery.grace + MARGIN_SECONDS
    try:
        while not job.ended and time.monotonic() < deadline and _watched(session, job):
            time.sleep(LOOK_SECONDS)
            job = session.store.job(job.id)
    except KeyboardInterrupt:
        return session.store.job(job.id)  # the controller goes on with it
    return job


def begin_cancel(session: Session, job: Job) -> Job:
    """Note that a job is to end, and see to it that a controller ends it; return at once."""
    job = session.cancel(job)
    if not job.ended:
        _watched(session, job)
    return job


def _watched(session: Session, job: Job) -> bool:
    try:
        return ensure_controller(session.paths, os.environ)
    except ControllerError as error:
        raise ControllerError(f"{job.id}: the cancel is noted, but the job goes on, because {error}") from None
