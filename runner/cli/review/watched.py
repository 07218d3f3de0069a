"""Says on the standard error that no controller watches jobs, and refuses a setting of it that nobody understands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rung.jobs.job import Job
    from rung.runner.session.open_home import OpenHome


def refuse_bad_setting() -> None:
    """Refuse a RUNG_CONTROLLER that nobody understands, before anything is written."""
    from rung.runner.session.background import starts_by_itself

    starts_by_itself(os.environ)


def warn_if_unwatched(session: OpenHome, job: Job | None = None) -> None:
    """Say in one line on the standard error that jobs, or this one, are active and no controller runs."""
    from rung.runner.session.watching import unwatched

    line = unwatched(session.paths, session.store, job)
    if line is not None:
        click.echo(line, err=True)
