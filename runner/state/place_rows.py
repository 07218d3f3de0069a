"""Reads where attempts ended lately, and keeps what a person gave another chance, as a part of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rung.jobs.job import Attempt
from rung.jobs.model.event import EventKind
from rung.recovery.nodes.bad_places import BadPlace, find_bad_places
from rung.recovery.nodes.blame import OF_MACHINES
from rung.runner.state import codec

# Attempts are looked for among so many of the newest events. An attempt brings about ten, so these are a thousand.
NEWEST_EVENTS = 10_000
CLEARED = "cleared "

Made = TypeVar("Made")


class PlaceRows:
    """The part of the store that knows hosts, GPUs and nodes where jobs die."""

    _db: sqlite3.Connection

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        raise NotImplementedError

    def _decode(self, make: Callable[[sqlite3.Row], Made], rows: Sequence[sqlite3.Row]) -> list[Made]:
        raise NotImplementedError

    def newest_end(self) -> int:
        """Return the event of the attempt that ended last; it changes with every end."""
        rows = self._rows("SELECT seq FROM events WHERE kind = ? ORDER BY seq DESC LIMIT 1", EventKind.ENDED.value)
        return int(rows[0]["seq"]) if rows else 0

    def ended_lately(self) -> list[Attempt]:
        """Return the attempts of all jobs, also of removed ones, that ended within the newest events.

        Each has the time at which the controller saw its end: the clock of a host may be wrong. Without a fault of a
        machine among these events nobody asks where the others ended, and there are none.
        """
        newest = "seq > (SELECT max(seq) FROM events) - ? AND kind = ?"
        kinds = tuple(kind.value for kind in OF_MACHINES)
        faults = f"SELECT json_extract(data, '$.kind') AS fault FROM events WHERE {newest}"  # noqa: S608
        if not any(row["fault"] in kinds for row in self._rows(faults, NEWEST_EVENTS, EventKind.FAULT.value)):
            return []
        ended = f"SELECT job_id, attempt, max(at) AS at FROM events WHERE {newest} GROUP BY job_id, attempt"  # noqa: S608
        query = f"SELECT data, at FROM attempts JOIN ({ended}) USING (job_id) WHERE number = attempt"  # noqa: S608
        rows = self._rows(query, NEWEST_EVENTS, EventKind.ENDED.value)
        return self._decode(lambda row: replace(codec.attempt_from_row(row), ended_at=row["at"]), rows)

    def cleared_places(self) -> dict[str, float]:
        """Return when a person gave hosts, nodes or GPUs another chance, by their names."""
        rows = self._rows("SELECT key, value FROM meta WHERE substr(key, 1, ?) = ?", len(CLEARED), CLEARED)
        return dict(self._decode(lambda row: (row["key"].removeprefix(CLEARED), float(row["value"])), rows))

    def bad_places(self, now: float) -> list[BadPlace]:
        """Return what one job or all jobs avoid now."""
        return find_bad_places(self.ended_lately(), now, self.cleared_places())

    # Writing, inside a transaction

    def clear_place(self, name: str, *, at: float) -> None:
        """Write that what happened on a host, a node or a GPU up to now does not count any more."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"{CLEARED}{name}", repr(at)))
