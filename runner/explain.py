"""Owns `rung explain`: what Rung would see in any log file, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any

from jobs.fault import Fault
from recovery.detect import Detector
from recovery.lines import LineSplitter

CHUNK = 1024 * 1024


def explain(log: IO[bytes], progress: Callable[[int], None]) -> list[dict[str, Any]]:
    """Return the faults in a log, in order, as the contract has them."""
    detector, lines = Detector(), LineSplitter()
    found: list[Fault] = []
    for chunk in _chunks(log):
        progress(len(chunk))
        for line in lines.feed(chunk):
            found += detector.feed(line)
    for line in lines.flush():
        found += detector.feed(line)
    found += detector.finish()
    return [
        {"fault": fault.kind.value, "line": fault.line, "step": fault.step, "evidence": fault.evidence}
        for fault in found
    ]


def _chunks(log: IO[bytes]) -> Iterator[bytes]:
    while chunk := log.read(CHUNK):
        yield chunk
