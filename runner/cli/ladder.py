"""The command `rung ladder`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rung.recovery.decide.rung_stats import Ledger

NO_TRIES = (
    "no rung has been tried to its end yet: what each one does for each fault is counted from the jobs of this store"
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def ladder(as_json: bool) -> None:
    """Show what each rung did for each fault on each GPU, over all jobs: what `ladder: auto` goes by.

    TRIES: how often it was tried; TOOK: its change was seen in the job; SURVIVED: the run got past the fault for good;
    LOST: steps that had to be run again, the median.
    """
    rows = [asdict(row) for row in _ledger().rows]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        click.echo(_table(rows) if rows else NO_TRIES)


def _table(rows: list[dict[str, Any]]) -> str:
    from rung.runner.views.tables import table

    headers = ("FAULT", "GPU", "RUNG", "TRIES", "TOOK", "SURVIVED", "LOST")
    return table(headers, [[row[name.lower()] for name in headers] for row in rows], 10_000)


def _ledger() -> Ledger:
    from rung.recovery.decide.rung_stats import EMPTY, read_ledger
    from rung.runner.engines.process import ProcessEngine
    from rung.runner.state.home import find_home, refuse_shared_home
    from rung.runner.state.store import Store

    paths = find_home(os.environ)
    if not paths.store.exists():
        return EMPTY
    refuse_shared_home(paths)
    store = Store(paths.store)
    try:
        return read_ledger(store.attempts_by_job(), ProcessEngine().gpu())
    finally:
        store.close()
