"""The command `rung init`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rung.jobs.model.terminal_text import clean

if TYPE_CHECKING:
    from rung.runner.preflight.init_job import NewJob


@click.command()
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--output", type=click.Path(path_type=Path), help="Write this file instead of job.yaml beside the script."
)
@click.option("--print", "only_print", is_flag=True, help="Print the job file and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option("--force", is_flag=True, help="Replace a job file that exists.")
def init(
    script: Path, arguments: tuple[str, ...], output: Path | None, only_print: bool, as_json: bool, force: bool
) -> None:
    """Write a job file for the training SCRIPT.

    For example: rung init train.py -- --epochs 3. It reads how the script takes its options, saves and resumes, and
    says so in the file, with the lines. Nothing is run, imported or asked. ARGUMENTS after -- are those of the script.
    """
    from rung.runner.preflight.init_job import new_job, write_job

    job = new_job(script, arguments, output)
    if not only_print:
        write_job(job, force=force)
    if as_json:
        found = {"found": job.draft.summary, "left": job.draft.left}
        click.echo(json.dumps({"file": str(job.path), "written": not only_print, "text": job.text, **found}, indent=2))
    elif only_print:
        click.echo(job.text, nl=False)
    else:
        _print_story(job)


def _print_story(job: NewJob) -> None:
    click.echo(f"wrote {clean(str(job.path))}")
    for each in job.draft.summary:
        click.echo(f"  {clean(each)}")
    click.echo(f"read it, then: rung check {clean(str(job.path))}")
