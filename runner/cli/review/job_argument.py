"""Completes the name of a job in a shell."""

from __future__ import annotations

import click


def complete_job(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from rung.jobs.model.errors import RungError
    from rung.runner.session.session import Session

    try:
        ids = [job.id for job in Session.open().store.jobs()]
    except RungError:
        return []
    return [name for name in ids if name.startswith(incomplete)]
