"""The command `rung launch`: one job of a file, or one for each combination of a grid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rung.jobs.model.errors import UsageError
from rung.jobs.model.terminal_text import clean
from rung.runner.cli.checkpoints import without_checkpoints
from rung.runner.cli.controller import watch_group, watch_over
from rung.runner.cli.review.job_argument import complete_job
from rung.runner.cli.review.watched import refuse_bad_setting

if TYPE_CHECKING:
    from rung.jobs.spec.job_spec import JobSpec


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-f", "--follow", is_flag=True, help="Stay and tell the job's story until it ends.")
@click.option("--log", is_flag=True, help="Like -f, but show the whole log instead of the story.")
@click.option("--dryrun", is_flag=True, help="Print exactly what would be run, and what every rung would change.")
@click.option(
    "--from",
    "start",
    metavar="JOB[@STEP]",
    shell_complete=complete_job,
    help="Begin at a checkpoint of another job: the newest healthy one, or that of STEP. With --grid, every job does.",
)
@click.option(
    "--grid",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="Launch one job for each value, or for each combination if given repeatedly. KEY is a knob (lr), a field of "
    "the job file (envs.SEED, recovery.max_attempts), or a {placeholder} of your own in run (seed).",
)
@click.option(
    "--at-once", type=click.IntRange(min=1), metavar="N", help="With --grid: at most N of these jobs run at once."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def launch(  # noqa: PLR0913  (one for each option)
    file: Path,
    follow: bool,
    log: bool,
    dryrun: bool,
    start: str | None,
    grid: Sequence[str],
    at_once: int | None,
    as_json: bool,
) -> None:
    """Submit the job in FILE, and have a controller watch it.

    One is started in the background if none runs. With RUNG_CONTROLLER=manual no controller is started; -f is the
    controller itself while it follows the job.
    """
    if dryrun and start is not None:
        raise UsageError("--from: a dry run looks at no checkpoint; leave out one of the two")
    if grid:
        if follow or log:
            raise UsageError("-f follows one job; leave it out, and follow one of the grid with `rung follow JOB`")
        _launch_grid(file, grid, (at_once, start), dryrun=dryrun, as_json=as_json)
    elif at_once is not None:
        raise UsageError("--at-once: it limits the jobs of a grid; give --grid too, or set RUNG_MAX_PARALLEL")
    elif dryrun:
        _preview(file, as_json=as_json)
    else:
        _launch_one(file, start, (follow, log), as_json=as_json)


def _preview(file: Path, *, as_json: bool) -> None:
    from rung.jobs.spec.load import load_spec
    from rung.runner.session.session import dryrun

    click.echo(dryrun(load_spec(file), file.absolute().parent, as_json=as_json))


def _launch_one(file: Path, start: str | None, follow_log: tuple[bool, bool], *, as_json: bool) -> None:
    from rung.jobs.spec.load import load_spec
    from rung.runner.session.session import Session

    spec = load_spec(file)
    note = without_checkpoints(spec)
    if start is not None:
        _refuse_blind(spec)
    refuse_bad_setting()
    session = Session.open(create=True)
    job = session.submit(spec, file.absolute().parent, file.absolute(), start)
    quiet = as_json and not any(follow_log)
    if quiet:
        click.echo(json.dumps({"id": job.id, "name": job.spec.name, "state": job.state}, indent=2))
    else:
        click.echo(f"submitted {job.id}")
    if note is not None:
        click.echo(clean(note), err=quiet)
    watch_over(session, job, follow_log, quiet=quiet)


def _refuse_blind(spec: JobSpec) -> None:
    """Refuse a start from a checkpoint for a job that would not load it."""
    if without_checkpoints(spec) is not None:
        raise UsageError(f"--from: {spec.name} is given no {{checkpoint}}, so it would begin at step 0")


def _launch_grid(
    file: Path, grid: Sequence[str], how: tuple[int | None, str | None], *, dryrun: bool, as_json: bool
) -> None:
    from rung.runner.launch.grid import load_grid, parse_grid
    from rung.runner.session.session import Session, dryrun_grid

    (at_once, start), combinations = how, load_grid(file, parse_grid(grid))
    if start is not None:
        for each in combinations:
            _refuse_blind(each.spec)
    if dryrun:
        click.echo(dryrun_grid(combinations, file.absolute().parent, at_once, as_json=as_json))
        return
    refuse_bad_setting()
    session = Session.open(create=True)
    group, jobs = session.submit_grid(combinations, file.absolute(), at_once, start)
    if as_json:
        listed = [
            {"id": job.id, "name": job.spec.name, "state": job.state, "settings": dict(each.settings)}
            for job, each in zip(jobs, combinations, strict=True)
        ]
        click.echo(json.dumps({"group": group, "at_once": at_once, "jobs": listed}, indent=2))
    else:
        count = f"{len(jobs)} job{'s' if len(jobs) > 1 else ''}" + (f", at most {at_once} at once" if at_once else "")
        click.echo("\n".join([f"submitted group {group}: {count}", *(f"  {job.id}" for job in jobs)]))
    note = without_checkpoints(jobs[0].spec)
    if note is not None:
        click.echo(clean(note), err=as_json)
    watch_group(session, jobs[0], group, quiet=as_json)
