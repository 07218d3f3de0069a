"""Writes runs as event files of TensorBoard into a folder of a person's choice, all or none of them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rung.jobs.model.errors import StoreError, UsageError
from rung.runner.report.event_records import scalar_record, text_record, version_record
from rung.runner.report.event_runs import EventRun

# TensorBoard takes every file with `tfevents` in its name.
FILE = "events.out.tfevents.rung"


def write_runs(target: Path, runs: Sequence[EventRun]) -> None:
    """Write each run into a folder of its own below the target, which has to be new or empty."""
    is_new = not target.exists()
    try:
        if not is_new and (not target.is_dir() or any(target.iterdir())):
            raise UsageError(f"{target}: is there already and is no empty folder; name a new one")
        target.mkdir(exist_ok=True)
        for run in runs:
            _write(target / run.name, run)
    except OSError as error:
        _remove(target, runs, is_new=is_new)
        raise StoreError(f"{target}: the event files cannot be written there: {error.strerror}") from None


def _write(folder: Path, run: EventRun) -> None:
    folder.mkdir(parents=True)
    with (folder / FILE).open("wb") as file:
        file.write(version_record())
        file.writelines(scalar_record(*each) for each in run.scalars)
        file.writelines(text_record(*each) for each in run.texts)


def _remove(target: Path, runs: Sequence[EventRun], *, is_new: bool) -> None:
    for run in runs:
        shutil.rmtree(target / Path(run.name).parts[0], ignore_errors=True)
    if is_new:
        with suppress(OSError):
            target.rmdir()
