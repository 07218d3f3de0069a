"""Finds the faults in any log file, in bounded memory, for `rung explain`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

import click

from rung.jobs.model.fault import Fault
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.scan import Scan

CHUNK = 1024 * 1024
# A smaller log takes too little time to need a progress bar.
LONG_LOG = 64 * 1024 * 1024


def explain_log(log: IO[bytes], *, quick: bool) -> list[dict[str, Any]]:
    """Return the faults in a log; show the progress on standard error if it is a long one."""
    size = os.fstat(log.fileno()).st_size if log.name != "<stdin>" else 0
    if size < LONG_LOG:
        return explain(log, lambda read: None, quick=quick)
    if not sys.stderr.isatty():
        return explain(log, _progress_lines(size), quick=quick)
    with click.progressbar(length=size, label="reading", file=sys.stderr) as bar:
        return explain(log, bar.update, quick=quick)


def _progress_lines(size: int) -> Callable[[int], None]:
    """Return a function that prints a line for every tenth, for an output without a progress bar."""
    done = 0

    def update(read: int) -> None:
        nonlocal done
        before, done = done, done + read
        if 10 * before // size < 10 * done // size:
            click.echo(f"read {done >> 20} of {size >> 20} MiB", err=True)

    return update


def explain(log: IO[bytes], progress: Callable[[int], None], *, quick: bool = False) -> list[dict[str, Any]]:
    """Return the faults in a log, in the order of their lines, as `--json` prints them."""
    scan = Scan(Detector(), quick=quick)
    found: list[Fault] = []
    for chunk in _chunks(log):
        found += scan.feed(chunk)
        progress(len(chunk))
    found += scan.finish()
    cause = scan.detector.first_fault(ended=True)
    rows = [_as_row(fault, is_cause=fault == cause) for fault in sorted(found, key=lambda fault: fault.line or 0)]
    # A quick scan leaves out most lines, so the last step that it saw may be long past.
    return [{**row, "step": None} for row in rows] if quick else rows


def _as_row(fault: Fault, *, is_cause: bool) -> dict[str, Any]:
    """Return one fault as `--json` prints it; the first cause is the fault that Rung would act on at the end."""
    return {
        "fault": fault.kind.value,
        "line": fault.line,
        "step": fault.step,
        "evidence": fault.evidence,
        "note": fault.note,
        "first_cause": is_cause,
    }


def _chunks(log: IO[bytes]) -> Iterator[bytes]:
    while chunk := log.read(CHUNK):
        yield chunk
