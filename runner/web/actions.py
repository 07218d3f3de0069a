"""Cancels and retries jobs for the page, through the same functions as the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing

from rung.jobs.model.errors import ControllerError, UsageError
from rung.jobs.model.terminal_text import clean
from rung.runner.launch.job_file import changed_since
from rung.runner.session.background import ensure_controller, starts_by_itself
from rung.runner.session.cancel import begin_cancel
from rung.runner.session.session import Session
from rung.runner.session.watching import unwatched

MOST_KNOBS, MOST_CHARACTERS = 32, 200


def cancel(job_id: str) -> str:
    """End a job; return what to tell the person."""
    starts_by_itself(os.environ)
    session = Session.open()
    with closing(session.store):
        job = begin_cancel(session, session.store.job(job_id))
        said = f"{job.id} is {job.state}" + ("" if job.ended else "; cancelling")
        return "; ".join(filter(None, [said, unwatched(session.paths, session.store, job)]))


def retry(job_id: str, knobs: Mapping[str, str]) -> str:
    """Run an ended job again with these knobs changed; return what to tell the person."""
    starts_by_itself(os.environ)
    session = Session.open()
    with closing(session.store):
        asked = session.store.job(job_id)
        note = changed_since(session.store, asked)
        job = session.retry(asked, [f"{name}={value}" for name, value in knobs.items()])
        said = [f"{job.id} is {job.state} again", note, _see_to_controller(session, job.id)]
        return clean("; ".join(filter(None, said)))


def _see_to_controller(session: Session, job_id: str) -> str | None:
    try:
        ensure_controller(session.paths, os.environ)
    except ControllerError as error:
        return f"{error}; nobody watches {job_id} until one runs"
    return unwatched(session.paths, session.store, session.store.job(job_id))


def knobs_of(body: object) -> dict[str, str]:
    """Return the knobs that the page sends: only those that a person has changed."""
    knobs = body.get("knobs", {}) if isinstance(body, dict) else None
    if not isinstance(knobs, dict) or len(knobs) > MOST_KNOBS:
        raise UsageError("retry: send the changed knobs as names and values")
    for name, value in knobs.items():
        if not isinstance(value, str) or max(len(value), len(name)) > MOST_CHARACTERS:
            raise UsageError(f"retry: {clean(name[:MOST_CHARACTERS])}: send its value as a short text")
    return knobs
