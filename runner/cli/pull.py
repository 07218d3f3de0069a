"""The command `rung pull`."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from rung.jobs.model.errors import UsageError
from rung.jobs.model.terminal_text import clean
from rung.runner.cli.checkpoints import size_text
from rung.runner.cli.review.job_argument import complete_job

# Between two states of the line that shows the progress.
REFRESH_SECONDS = 0.2


@click.command()
@click.argument("job", shell_complete=complete_job)
@click.argument("pattern", required=False)
@click.option("--to", type=click.Path(path_type=Path), metavar="DIR", help="Where to put them (default: ./JOB).")
@click.option("--force", is_flag=True, help="Replace files that are there with another content.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def pull(job: str, pattern: str | None, to: Path | None, force: bool, as_json: bool) -> None:
    """Fetch checkpoints, logs and results of JOB.

    They come from its host, or from RUNG_HOME. Without PATTERN: the newest healthy checkpoint, the log of every
    attempt, and the recovery history. With one: the files that match it in the folders of the newest attempt: its
    checkpoints, its output (the folder it keeps), and its copy of the workdir. Write it as '*.json', 'out/*.csv' or
    'results/**/best.pt'; a folder that matches comes whole. Every file is compared by SHA-256. Links are never
    followed.
    """
    from rung.runner.context import Context
    from rung.runner.session.session import Session
    from rung.runner.storage.delivery import Delivery
    from rung.runner.storage.pull import chosen_by_default, chosen_by_pattern, history_text

    session = Session.open()
    found = session.store.find(job)
    engines = session.engines()
    try:
        context = Context(session.store, engines, session.paths, os.environ)
        if pattern is None:
            choices, texts = chosen_by_default(context, found), {"history.json": history_text(context, found)}
        else:
            choices, texts = chosen_by_pattern(context, found, pattern), {}
        if pattern is not None and not choices:
            raise UsageError(f"job {found.id}: no file matches {clean(pattern)}")
        to = to if to is not None else Path(found.id)
        progress = Progress(sum(each.size for each in choices))
        delivered = Delivery(to, force).deliver(choices, texts, progress.add)
        progress.close()
    finally:
        engines.close()
    if as_json:
        click.echo(json.dumps({"to": str(to.absolute()), "files": [asdict(each) for each in delivered]}, indent=2))
        return
    for each in delivered:
        click.echo(f"{size_text(each.size):>9}  {clean(each.path)}{'' if each.new else '  (was there already)'}")
    click.echo(clean(f"{len(delivered)} files, {size_text(sum(each.size for each in delivered))}, in {to}"))


class Progress:
    """Shows on a terminal how much has come."""

    def __init__(self, size: int) -> None:
        self._size, self._come, self._shown = size, 0, 0.0
        self._terminal = sys.stderr.isatty()

    def add(self, count: int) -> None:
        self._come += count
        now = time.monotonic()
        if self._terminal and now - self._shown >= REFRESH_SECONDS:
            self._shown = now
            share = 100 * self._come // max(self._size, 1)
            click.echo(f"\r\033[K{size_text(self._come)} of {size_text(self._size)} ({share} %)", err=True, nl=False)

    def close(self) -> None:
        if self._terminal and self._shown:
            click.echo("\r\033[K", err=True, nl=False)
