"""Completes the name of a job or of a group of jobs in a shell."""

from __future__ import annotations

import click


def complete_job(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _names()[0] if name.startswith(incomplete)]


def complete_group(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _names()[1] if name.startswith(incomplete)]


def complete_job_or_group(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    jobs, groups = _names()
    return [name for name in (*groups, *jobs) if name.startswith(incomplete)]


def _names() -> tuple[list[str], list[str]]:
    """Return the jobs and the groups of the store; none if it cannot be read, since nobody reads an error here."""
    from rung.jobs.model.errors import RungError
    from rung.runner.session.open_home import OpenHome

    try:
        store = OpenHome.open().store
        groups = dict.fromkeys(each.group for each in store.groups().values())
        return [job.id for job in store.listed_jobs()], list(groups)
    except RungError:
        return [], []
