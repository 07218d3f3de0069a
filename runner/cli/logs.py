"""The command `rung logs`."""

from __future__ import annotations

import sys

import click

from rung.runner.cli.checkpoints import complete_job
from rung.runner.cli.controller import warn_if_unwatched

COUNT = click.IntRange(min=1)


@click.command()
@click.argument("job", shell_complete=complete_job)
@click.option("-n", "--attempt", type=COUNT, metavar="N", help="The log of attempt N (default: the newest).")
@click.option("--tail", type=COUNT, metavar="N", help="Only its last N lines.")
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Go on until the job ends: from its beginning with its events, or only the log from the last N lines on with "
    "--tail, or of one attempt with --attempt.",
)
def logs(job: str, attempt: int | None, tail: int | None, follow: bool) -> None:
    """Print the log of JOB, without control codes. Of a progress bar, only its last refresh is shown."""
    from rung.runner.session.follow import JobFollow
    from rung.runner.session.log_follow import JobLog
    from rung.runner.session.session import Session

    session = Session.open()
    found = session.store.find(job)
    log = JobLog(session, found.id, attempt, tail)
    if follow and attempt is None and tail is None:
        sys.exit(JobFollow(session, found.id, log=True).watch_only())
    if follow:
        warn_if_unwatched(session, found)
        sys.exit(log.follow())
    for line in log.lines():
        click.echo(line)
