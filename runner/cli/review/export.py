"""The command `rung export`."""

from __future__ import annotations

from pathlib import Path

import click

from rung.jobs.model.errors import UsageError
from rung.jobs.model.terminal_text import clean
from rung.runner.cli.review.job_argument import complete_job


@click.group()
def export() -> None:
    """Write what a job has shown for another program."""


@export.command()
@click.argument("job", shell_complete=complete_job)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="DIR", help="A folder, new or empty."
)
def tensorboard(job: str, output: Path) -> None:
    """Write the curves of JOB into DIR as event files of TensorBoard.

    The run `run` is what counted, from the first step to the last, with every fault and every rung as a text at its
    step. What a resume threw away, and each trial, is a run of its own.
    """
    from rung.runner.report.curves import read_series
    from rung.runner.report.event_files import write_runs
    from rung.runner.report.event_runs import event_runs
    from rung.runner.session.open_home import OpenHome

    session = OpenHome.open()
    found = session.store.find(job)
    attempts = session.store.attempts(found.id)
    runs = event_runs(found, attempts, read_series(found, attempts, session.paths))
    if not runs:
        raise UsageError(f"{found.id} has shown no numbers: there is no curve to export")
    write_runs(output, runs)
    folder = clean(str(output))
    click.echo(
        f"wrote {', '.join(run.name for run in runs)} into {folder}; see them with: tensorboard --logdir {folder}"
    )
