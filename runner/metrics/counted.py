"""Keeps what was counted of each job in a file, so that the metrics of thousands of ended jobs cost little.

Only jobs with events since then are counted again. The file is no second truth: without it everything is counted anew.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rung.runner.metrics.job_counts import RELAUNCH_BOUNDS, Counts
from rung.runner.metrics.store_reader import StoreReader
from rung.runner.metrics.whole_file import put_whole

# Changes with what is counted, so that a file with other counts is not used.
FORMAT = [2, list(RELAUNCH_BOUNDS)]
# The file is written again after so many new events; until then the few jobs that they are about are counted each time.
WRITE_AFTER = 500


# The counts of a job as the file has them: the key's words, then the value.
Rows = list[list[Any]]


@dataclass
class Counted:
    """The counts of all jobs together and of each one, up to an event."""

    event: int = 0
    total: Counts = field(default_factory=Counter)
    jobs: dict[str, Rows] = field(default_factory=dict)

    def put(self, job: str, counts: Counts) -> None:
        """Take these counts of a job in place of those before."""
        self.total.subtract(_counts(self.jobs.get(job, [])))
        self.total.update(counts)
        self.jobs[job] = _rows(counts)


def count(reader: StoreReader, file: Path) -> Counts:
    """Return the counts of all jobs; those in the file are used as far as they go."""
    store, last = reader.store_id(), reader.last_event()
    found = _read(file, store)
    if found.event > last:
        # The store was brought back from an older copy.
        found = Counted()
    before = found.event
    for job, counts in reader.counts_since(before).items():
        found.put(job, counts)
    found.event = last
    if last - before >= WRITE_AFTER:
        _write(file, store, found)
    return found.total


def _read(file: Path, store: str) -> Counted:
    try:
        data = json.loads(file.read_bytes())
        if [data["format"], data["store"]] != [FORMAT, store]:
            return Counted()
        return Counted(int(data["event"]), _counts(data["total"]), dict(data["jobs"]))
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return Counted()


def _counts(rows: Rows) -> Counts:
    return Counter({tuple(str(word) for word in key): int(value) for *key, value in rows})


def _rows(counts: Counts) -> Rows:
    return [[*key, value] for key, value in counts.items()]


def _write(file: Path, store: str, found: Counted) -> None:
    data = {"format": FORMAT, "store": store, "event": found.event, "total": _rows(found.total), "jobs": found.jobs}
    # It only saves time: on a full disk, or in a folder that cannot be written, the next one counts again.
    with suppress(OSError):
        put_whole(file, json.dumps(data, separators=(",", ":")))
