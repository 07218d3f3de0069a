"""The command `rung init`."""

from __future__ import annotations

from pathlib import Path

import click

from rung.jobs.model.terminal_text import clean


@click.command()
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--output", type=click.Path(path_type=Path), help="Write this file instead of job.yaml beside the script."
)
@click.option("--print", "only_print", is_flag=True, help="Print the job file and write nothing.")
@click.option("--force", is_flag=True, help="Replace a job file that exists.")
def init(script: Path, arguments: tuple[str, ...], output: Path | None, only_print: bool, force: bool) -> None:
    """Write a job file for the training SCRIPT: rung init train.py -- --epochs 3.

    Reads how the script takes its options, saves and resumes, and says so in the file, with the lines. Nothing is run,
    imported or asked. ARGUMENTS after -- are those of the script.
    """
    from rung.runner.preflight.init_job import new_job, write_job

    job = new_job(script, arguments, output)
    if only_print:
        click.echo(job.text, nl=False)
        return
    write_job(job, force=force)
    click.echo(f"wrote {clean(str(job.path))}")
    for each in job.draft.summary:
        click.echo(f"  {clean(each)}")
    click.echo(f"read it, then: rung check {clean(str(job.path))}")
