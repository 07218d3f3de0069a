"""Reads the ledgers that jobs write themselves: which processes ran, what each did, and in which order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One process of a job, from its first record to its last; a process that was killed lived a little longer."""

    pid: int
    attempt: int
    records: tuple[Record, ...]

    @property
    def start(self) -> Record:
        return self.records[0]

    @property
    def first(self) -> int:
        return int(self.records[0]["t"])

    @property
    def last(self) -> int:
        return int(self.records[-1]["t"])

    @property
    def code(self) -> int | None:
        """The exit code; None: it did not come to its end."""
        return next((record["code"] for record in self.of("end")), None)

    @property
    def lines(self) -> list[bytes]:
        """What it printed, or was about to."""
        return [record["text"].encode("latin-1") for record in self.of("line")]

    @property
    def faults(self) -> set[str]:
        return {record["fault"] for record in self.of("fault")}

    def of(self, kind: str) -> Iterator[Record]:
        return (record for record in self.records if record["kind"] == kind)


def read_ledger(path: Path) -> list[Record]:
    """Return the records in the order in which they were written; a job that never started has none."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def runs_of(records: list[Record]) -> list[Run]:
    """Return the processes in the order of their starts. A pid may come again, so a start begins a new one.

    Containers have pids of their own, so a process is known by the name of its machine, too.
    """
    runs: dict[tuple[str, int], list[Record]] = {}
    order: list[list[Record]] = []
    for record in records:
        who = record.get("where", ""), record["pid"]
        if record["kind"] == "start":
            order.append([])
            runs[who] = order[-1]
        runs[who].append(record)
    return [Run(each[0]["pid"], each[0]["attempt"], tuple(each)) for each in order]
