"""The commands that show a run: `rung follow` its story, `rung logs` its log, `rung explain` any log file."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from rung.jobs.model.terminal_text import clean
from rung.runner.cli.review.job_argument import complete_job
from rung.runner.cli.review.watched import refuse_bad_setting, warn_if_unwatched

if TYPE_CHECKING:
    from rung.runner.session.follow import JobFollow

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
    from rung.runner.session.log_follow import JobLog
    from rung.runner.session.open_home import OpenHome

    if follow and attempt is None and tail is None:
        sys.exit(_job_follow(job, log=True).watch_only())
    session = OpenHome.open()
    found = session.store.find(job)
    log = JobLog(session, found.id, attempt, tail)
    if follow:
        warn_if_unwatched(session, found)
        sys.exit(log.follow())
    for line in log.lines():
        click.echo(line)


@click.command()
@click.argument("job", shell_complete=complete_job)
@click.option("--log", is_flag=True, help="Show the whole log instead of the story.")
def follow(job: str, log: bool) -> None:
    """Tell the story of JOB so far, and go on until it ends.

    It is what `rung launch -f` shows, also after its Ctrl-C or in another terminal; Ctrl-C ends only the following.
    Exit code 0 if the job SUCCEEDED, 1 if not, 130 after Ctrl-C. It starts a controller if none runs, as `rung launch`
    does. A job that was retried is told from there.
    """
    refuse_bad_setting()
    sys.exit(_job_follow(job, log=log).follow())


def _job_follow(job: str, *, log: bool) -> JobFollow:
    # Imported only here: it may become the controller.
    from rung.runner.session.follow import JobFollow
    from rung.runner.session.session import Session

    session = Session.open()
    return JobFollow(session, session.store.find(job).id, log=log)


@click.command()
@click.argument("log", type=click.File("rb"))
@click.option("--quick", is_flag=True, help="Search only for faults, at the speed of grep: no steps, no early warning.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def explain(log: Any, quick: bool, as_json: bool) -> None:
    """Show which faults Rung finds in any LOG file.

    It also shows what it read, and what it would do. LOG may be - for standard input. What it would do is said for a
    job with the default ladder that takes all knobs, with a healthy checkpoint from before the fault; `rung launch
    --dryrun` says it for a job file.
    """
    from rung.runner.session.explain import explain_log

    explanation = explain_log(log, quick=quick)
    found = explanation.faults
    if as_json:
        click.echo(json.dumps([*found, *explanation.may_show], indent=2, default=str))
        return
    for fault in found:
        step = f" step {fault['step']}" if fault["step"] is not None else ""
        cause = " (first cause)" if fault["first_cause"] and len(found) > 1 else ""
        note = f" [{fault['note']}]" if fault["note"] else ""
        named = click.style(fault["fault"], fg="red")
        click.echo(f"line {fault['line']}:{step} {named}{cause}: {fault['evidence']}{note}")
    if not found:
        click.echo("no fault that Rung knows")
    for line in explanation.text():
        click.echo(clean(line))
