"""The command `rung report`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rung.jobs.model.errors import UsageError
from rung.jobs.model.terminal_text import clean
from rung.runner.cli.review.job_argument import complete_job

if TYPE_CHECKING:
    from rung.runner.session.session import Session


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@click.option("--since", metavar="TIME", help="Report on all jobs since then: 12h, 3d, or a date such as 2026-03-31.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write one HTML file that needs nothing else.")
def report(job: str | None, since: str | None, output: Path | None) -> None:
    """Say how JOB went, or with --since what happened to all jobs; with -o as a page for a colleague.

    The first line can be pasted into a chat. The page of a job has its curves, attempts, knobs, trials, checkpoints,
    faults, times and costs. It opens offline, and has no script.
    """
    from rung.runner.session.session import Session

    if (job is None) == (since is None):
        raise UsageError("rung report: name a job, or a time with --since 12h")
    session = Session.open()
    if job is not None:
        _report_job(session, job, output)
    else:
        _report_since(session, str(since), output)


def _report_job(session: Session, job: str, output: Path | None) -> None:
    from rung.runner.report.job_report import job_page, totals
    from rung.runner.report.summary import summary_line
    from rung.runner.session.watching import unwatched
    from rung.runner.views.history import history

    found, now = session.store.find(job), time.time()
    data = history(session.store, found, session.paths, now)
    nobody = unwatched(session.paths, session.store, found)
    if nobody is not None:
        click.echo(nobody, err=True)
    click.echo(summary_line(data))
    if output is None:
        for name, value in totals(data):
            click.echo(f"  {name:<16}{clean(value)}")
    else:
        _write(output, job_page(session.store, found, session.paths, now))


def _report_since(session: Session, since: str, output: Path | None) -> None:
    from rung.runner.report.since_report import since_page, since_report, since_text
    from rung.runner.views.times import parse_since

    now = time.time()
    found = since_report(session.store, session.paths, parse_since(since, now), now)
    if output is None:
        click.echo(since_text(found))
    else:
        click.echo(clean(found.line))
        _write(output, since_page(found))


def _write(output: Path, page: str) -> None:
    from rung.runner.report.write import write_page

    write_page(output, page)
    click.echo(f"written to {clean(str(output))}")
