"""The command `rung queue`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from rung.jobs.model.state import JobState
from rung.runner.cli.review.job_argument import complete_group
from rung.runner.cli.review.watched import warn_if_unwatched

if TYPE_CHECKING:
    from rung.runner.session.open_home import OpenHome
    from rung.runner.views.queue import QueueFilter


class StateName(click.Choice[str]):
    """A state in any case. click's own choice without case would list the states in small letters."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(value.upper(), param, ctx)


NO_JOBS = "no jobs yet: submit one with `rung launch FILE`"
STATES = StateName([state.value for state in JobState])


@click.command()
@click.option("--state", "states", type=STATES, multiple=True, help="Only jobs in this state; may be given repeatedly.")
@click.option("--name", help="Only jobs of this name; * and ? stand for any characters.")
@click.option("--group", metavar="G", shell_complete=complete_group, help="Only the jobs of one `rung launch --grid`.")
@click.option("--since", metavar="TIME", help="Only jobs submitted since: 30m, 2h, 3d, or a date such as 2026-03-31.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N of them.")
@click.option("--wide", is_flag=True, help="Show every column and the whole reason, however long the lines get.")
@click.option("--csv", "as_csv", is_flag=True, help="Print a table for spreadsheets: one line per job.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def queue(  # noqa: PLR0913  (one for each option)
    states: Sequence[str],
    name: str | None,
    group: str | None,
    since: str | None,
    limit: int | None,
    wide: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    """List the jobs with their states, the newest last.

    AGE is the time since a job was submitted, TIME how long it has run. The table fits the terminal, or COLUMNS, or 80
    columns: the reason is shortened, and columns that do not fit are left out.
    """
    from rung.runner.session.open_home import OpenHome
    from rung.runner.state.home import find_home
    from rung.runner.state.lock import note
    from rung.runner.views import queue as view
    from rung.runner.views.times import parse_since

    now = time.time()
    after = parse_since(since, now) if since is not None else None
    wanted = view.QueueFilter(tuple(states), name, after, limit, group)
    if pause := note(home := find_home(os.environ)):
        click.echo(pause, err=True)
    session = OpenHome.open() if home.store.exists() else None
    found = _rows(session, now, wanted) if session is not None else []
    if as_json:
        click.echo(json.dumps(found, indent=2, default=str))
    elif as_csv:
        from rung.runner.views.csv_text import queue_csv

        click.echo(queue_csv(found), nl=False)
    elif found:
        click.echo(view.queue_table(found, view.WIDE if wide else view.terminal_columns(), now))
    else:
        click.echo(_nothing(filtered=wanted != view.QueueFilter()))


def _rows(session: OpenHome, now: float, wanted: QueueFilter) -> list[dict[str, Any]]:
    from rung.runner.views.queue import queue as rows

    if wanted.group is not None:
        session.store.refuse_unknown_group(wanted.group)
    found = rows(session.store, now, wanted)
    warn_if_unwatched(session)
    return found


def _nothing(*, filtered: bool) -> str:
    return "no job matches; `rung queue` lists all of them" if filtered else NO_JOBS
