"""The command `rung compare`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import click

from rung.jobs.model.errors import UsageError
from rung.runner.cli.review.job_argument import complete_group, complete_job


@click.command()
@click.argument("jobs", nargs=-1, metavar="JOB...", shell_complete=complete_job)
@click.option(
    "--group", metavar="G", shell_complete=complete_group, help="Compare the jobs of one `rung launch --grid`."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def compare(jobs: Sequence[str], group: str | None, as_json: bool) -> None:
    """Show jobs side by side: settings, end and costs.

    Only settings that differ are shown.     Losses, and the metric of success if the jobs have the same one, are
    compared at the last step that all jobs with any step have reached.
    """
    from rung.runner.session.open_home import OpenHome
    from rung.runner.views.compare import compare as build
    from rung.runner.views.compare import compare_text
    from rung.runner.views.queue import QueueFilter, terminal_columns

    if (group is None and len(set(jobs)) < 2) or (group is not None and jobs):
        raise UsageError("rung compare: name two jobs or more, or a group with --group G")
    session = OpenHome.open()
    if group is not None:
        session.store.refuse_unknown_group(group)
        found = QueueFilter(group=group).select(session.store, session.store.groups())
    else:
        found = list({job.id: job for job in map(session.store.find, jobs)}.values())
    if len(found) < 2:
        raise UsageError("rung compare: there are no two different jobs among these; `rung queue` lists them")
    data = build(session.store, found, session.paths, time.time())
    click.echo(json.dumps(data, indent=2, default=str) if as_json else compare_text(data, terminal_columns()))
