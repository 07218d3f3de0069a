"""Writes runs as event files of TensorBoard into a folder of a person's choice, all or none of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from rung.jobs.model.errors import StoreError, UsageError
from rung.runner.report.event_runs import EventRun

# TensorBoard takes every file with `tfevents` in its name.
FILE = "events.out.tfevents.rung"
VERSION = "brain.Event:2"


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
    # Not SummaryWriter: it writes in a thread of its own, which keeps the news of a full disk to itself.
    from tensorboardX.record_writer import RecordWriter

    folder.mkdir(parents=True)
    # A relative path that begins with `s3:` would lead to a cloud.
    with closing(RecordWriter(str(folder.absolute() / FILE))) as file:
        for event in _events(run):
            file.write(event.SerializeToString())


def _events(run: EventRun) -> Iterator[Any]:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.summary import text as text_summary

    yield Event(file_version=VERSION)
    for tag, step, value, at in run.scalars:
        yield Event(wall_time=at, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)]))
    for tag, step, text, at in run.texts:
        yield Event(wall_time=at, step=step, summary=text_summary(tag, text))


def _remove(target: Path, runs: Sequence[EventRun], *, is_new: bool) -> None:
    for run in runs:
        shutil.rmtree(target / Path(run.name).parts[0], ignore_errors=True)
    if is_new:
        with suppress(OSError):
            target.rmdir()
