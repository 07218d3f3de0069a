"""The command `rung ladder`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rung.recovery.evidence.calibration import Calibration
    from rung.recovery.ledger.ledger import Ledger
    from rung.runner.state.store import Store


@click.command()
@click.option("--calibration", is_flag=True, help="Show how likely each rung was to help when taken, and what came.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def ladder(calibration: bool, as_json: bool) -> None:
    """Show how well each rung did for each fault, over all jobs.

    That is what `ladder: auto` goes by, for each kind of GPU.

    TRIES: how often it was tried; TOOK: how often its change was seen in the job. Then what came of it, each try
    counted once, without those whose change was seen not to take. SURVIVED: past the fault, and whether it learns is
    not known; RECOVERED: past it and learning; FELL SHORT: not learning, or short of its `success`; FAILED: a fault
    again. LOST: steps that had to be run again, the median. TRIALS WON: of the rounds it took part in; LEAD: how far
    the loss of the next best rung was above, the median. CHANCE: how likely a recovery is, with the interval that it
    lies in with 80 %, before any diagnosis.
    """
    from rung.runner.views.ledger_tables import calibration_data, calibration_text, ledger_text

    if calibration:
        found = _calibration()
        click.echo(json.dumps(calibration_data(found), indent=2) if as_json else calibration_text(found))
        return
    rows = _ledger().rows
    click.echo(json.dumps([row.to_dict() for row in rows], indent=2) if as_json else ledger_text(rows))


def _ledger() -> Ledger:
    from rung.recovery.evidence.read_ledger import read_ledger
    from rung.recovery.ledger.ledger import EMPTY
    from rung.runner.engines.process import ProcessEngine

    with _store() as store:
        return read_ledger(store.attempts_by_job(), ProcessEngine().gpu()) if store else EMPTY


def _calibration() -> Calibration:
    from rung.recovery.evidence.calibration import Calibration, calibrate
    from rung.runner.engines.process import ProcessEngine

    with _store() as store:
        jobs = [(job, store.attempts(job.id)) for job in store.jobs(removed=True)] if store else []
        return calibrate(jobs, ProcessEngine().gpu()) if store else Calibration()


@contextmanager
def _store() -> Iterator[Store | None]:
    """Open the store to read it; None: there is none yet."""
    from rung.runner.state.home import find_home, refuse_shared_home
    from rung.runner.state.store import Store

    paths = find_home(os.environ)
    if not paths.store.exists():
        yield None
        return
    refuse_shared_home(paths)
    store = Store(paths.store)
    try:
        yield store
    finally:
        store.close()
