"""Owns `rung explain`: what Rung would see in any log file, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any

from jobs.fault import Fault
from recovery.detect import Detector
from recovery.lines import LineSplitter

CHUNK = 1024 * 1024


def explain(log: IO[bytes], progress: Callable[[int], None]) -> list[dict[str, Any]]:
    """Return the faults in a log, in the order of their lines, as the contract has them."""
    detector, lines = Detector(), LineSplitter()
    found: list[Fault] = []
    for chunk in _chunks(log):
        progress(len(chunk))
        for line in lines.feed(chunk):
            found += detector.feed(line)
    for line in lines.flush():
        found += detector.feed(line)
    found += detector.finish()
    cause = detector.finding(ended=True)
    return [_as_row(fault, is_cause=fault == cause) for fault in sorted(found, key=lambda fault: fault.line or 0)]


def _as_row(fault: Fault, *, is_cause: bool) -> dict[str, Any]:
    """Return one fault as the contract has it; the first cause is the one that Rung would act on at the end."""
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
