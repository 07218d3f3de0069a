"""The command `rung report`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rung.jobs.model.errors import UsageError
from rung.jobs.model.terminal_text import clean
from rung.runner.cli.review.job_argument import complete_job

if TYPE_CHECKING:
    from rung.runner.session.open_home import OpenHome


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@click.option("--since", metavar="TIME", help="Report on all jobs since then: 12h, 3d, or a date such as 2026-03-31.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write one HTML file that needs nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def report(job: str | None, since: str | None, output: Path | None, as_json: bool) -> None:
    """Say how JOB went, or what happened to all jobs since a time.

    With -o it is a page for a colleague. The first line can be pasted into a chat. The page of a job has its curves,
    attempts, knobs, trials, checkpoints, faults, times and costs. It opens offline, and has no script.
    """
    from rung.runner.session.open_home import OpenHome

    if (job is None) == (since is None):
        raise UsageError("rung report: name a job, or a time with --since 12h")
    session = OpenHome.open()
    if job is not None:
        _report_job(session, job, output, as_json=as_json)
    else:
        _report_since(session, str(since), output, as_json=as_json)


def _report_job(session: OpenHome, job: str, output: Path | None, *, as_json: bool) -> None:
    from rung.runner.report.job_report import job_page, totals
    from rung.runner.report.summary import summary_facts, summary_line
    from rung.runner.session.watching import unwatched
    from rung.runner.views.history import history

    found, now = session.store.find(job), time.time()
    data = history(session.store, found, session.paths, now)
    nobody = unwatched(session.paths, session.store, found)
    if nobody is not None:
        click.echo(nobody, err=True)
    if output is not None:
        _write(output, job_page(session.store, found, session.paths, now))
    if as_json:
        click.echo(json.dumps(summary_facts(data), indent=2))
        return
    click.echo(summary_line(data))
    if output is None:
        for name, value in totals(data):
            click.echo(f"  {name:<16}{clean(value)}")
    else:
        click.echo(f"written to {clean(str(output))}")


def _report_since(session: OpenHome, since: str, output: Path | None, *, as_json: bool) -> None:
    from rung.runner.report.since_report import since_page, since_report, since_text
    from rung.runner.views.times import parse_since

    now = time.time()
    found = since_report(session.store, session.paths, parse_since(since, now), now)
    if output is not None:
        _write(output, since_page(found))
    if as_json:
        click.echo(json.dumps({"line": found.line, **asdict(found)}, indent=2))
    elif output is None:
        click.echo(since_text(found))
    else:
        click.echo(f"{clean(found.line)}\nwritten to {clean(str(output))}")


def _write(output: Path, page: str) -> None:
    from rung.runner.report.write import write_page

    write_page(output, page)
