"""The commands `rung rm` and `rung prune`: show what goes, ask, remove it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rung.jobs.model.errors import UsageError
from rung.jobs.model.terminal_text import clean
from rung.runner.cli.review.job_argument import complete_job

if TYPE_CHECKING:
    from rung.runner.context import Context
    from rung.runner.storage.plan import Plan, Removal
    from rung.runner.storage.remove import Removed, Remover

YES = click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal to ask on.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text; it needs --yes or --dry-run.")


@dataclass(frozen=True)
class Answers:
    """What the user has said before being asked."""

    dry_run: bool
    yes: bool
    as_json: bool
    # Hosts that do not answer are no failure.
    give_up_hosts: bool = False


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_job)
@DRY_RUN
@YES
@click.option("--give-up-hosts", is_flag=True, help="Do not wait for hosts that do not answer; what is there stays.")
@JSON
def rm(jobs: Sequence[str], dry_run: bool, yes: bool, give_up_hosts: bool, as_json: bool) -> None:
    """Remove jobs that have ended, with all that they left.

    That is logs, records, checkpoints and work copies, here and on their hosts. It shows what there is and how much of
    the disk it takes, then asks. Folders of yours (an absolute checkpoint.dir, volumes) are never touched. What `rung
    ladder` learned from the jobs stays.
    """
    from rung.runner.storage.plan_rm import plan_rm, refuse_needed

    answers = Answers(dry_run, yes, as_json, give_up_hosts)
    with _context() as context:
        found = list({job.id: job for job in map(context.store.find, jobs)}.values())
        for job in found:
            refuse_needed(context, job)
        plan = plan_rm(context, found)
        _carry_out(context, plan, answers, lambda each: each.remove_jobs(plan, found, give_up_hosts=give_up_hosts))


@click.command()
@click.option("--older", default="30d", show_default=True, metavar="TIME", help="Only jobs that ended so long ago.")
@click.option(
    "--keep",
    default=2,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep the newest N checkpoints of each job.",
)
@DRY_RUN
@YES
@JSON
def prune(older: str, keep: int, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Free disk: remove what jobs that ended no longer need.

    That is, here and on their hosts, work copies, checkpoints that were set aside, and all checkpoints but the newest N
    of each job (and the last one of a job that succeeded); on hosts also shipped trees that no other job uses; here
    also reports of validations and what a killed `rung launch --from` left. Logs, records and the jobs themselves stay.
    Checkpoints that a job which has not ended may need are never touched, nor are folders of yours.
    """
    from rung.runner.storage.plan_prune import plan_prune
    from rung.runner.views.times import parse_span

    seconds = parse_span("--older", older)
    with _context() as context:
        plan = plan_prune(context, older=seconds, keep=keep, now=time.time())
        answers = Answers(dry_run, yes, as_json)
        _carry_out(context, plan, answers, lambda each: each.prune(plan, older=seconds, keep=keep))


@contextmanager
def _context() -> Iterator[Context]:
    from rung.runner.context import Context
    from rung.runner.session.session import Session

    session = Session.open()
    engines = session.engines()
    try:
        yield Context(session.store, engines, session.paths, os.environ)
    finally:
        engines.close()


def _carry_out(context: Context, plan: Plan, answers: Answers, work: Callable[[Remover], Removed]) -> None:
    """Show the plan, ask, remove, and exit with 1 if something could not be done."""
    from rung.runner.state.lock import removing
    from rung.runner.storage.remove import Remover
    from rung.runner.storage.report import plan_data, plan_text
    from rung.runner.views.tables import terminal_width

    if not answers.as_json:
        click.echo(plan_text(plan, terminal_width()))
    removed: Removed | None = None
    if not answers.dry_run:
        _ask(answers)
        with removing(context.paths):
            removed = work(Remover(context, (lambda removal: None) if answers.as_json else _tell))
    if answers.as_json:
        click.echo(json.dumps(plan_data(plan, removed), indent=2))
    elif removed is not None:
        _sum_up(removed)
    failed = plan.unreachable or (removed is not None and removed.failed)
    sys.exit(1 if failed and not answers.give_up_hosts else 0)


def _ask(answers: Answers) -> None:
    if answers.yes:
        return
    if answers.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("nothing was removed: there is no terminal to ask on; add --yes, or --dry-run")
    if not click.confirm("remove this?"):
        raise click.Abort


def _tell(removal: Removal) -> None:
    from rung.runner.storage.plan import shown_place
    from rung.runner.storage.report import use_text

    of = f" of {removal.job_id}" if removal.job_id else ""
    click.echo(clean(f"removed {use_text(removal.use)}: {removal.what}{of} on {shown_place(removal.where)}"))


def _sum_up(removed: Removed) -> None:
    from rung.runner.storage.report import use_text

    for sentence in removed.failed:
        click.echo(clean(sentence), err=True)
    click.echo(f"removed {use_text(removed.use)} in all")
    if removed.failed:
        click.echo("run the same command again later for what is left", err=True)
