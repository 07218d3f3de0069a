"""Reads where attempts ended lately, and keeps what is known of hosts, as a part of the store.

That is what a person gave another chance, and what the last survey of each site has shown.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from rung.jobs.job import Attempt
from rung.jobs.model.event import EventKind
from rung.runner.state import codec

if TYPE_CHECKING:
    from rung.recovery.nodes.bad_places import BadPlace

# Faults are looked for among so many of the newest events, and so many attempts are read: both take milliseconds.
NEWEST_EVENTS = 10_000
NEWEST_ATTEMPTS = 1000
CLEARED, SURVEYED = "cleared ", "surveyed "

Made = TypeVar("Made")


@dataclass(frozen=True)
class KeptSurvey:
    """What the last survey of a site has shown, and when."""

    at: float
    data: Mapping[str, Any]


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
        """Return the newest attempts of all jobs, also of removed ones, that ended since the first fault of a machine.

        Each has the time at which the controller saw its end: the clock of a host may be wrong. Without such a fault
        among the newest events there are none.
        """
        # What blames machines is imported where it is needed: most commands that open the store do not ask for it.
        from rung.recovery.nodes.blame import OF_MACHINES

        newest = "SELECT seq, json_extract(data, '$.kind') AS fault FROM events WHERE seq > ? AND kind = ? ORDER BY seq"
        (last,) = self._rows("SELECT coalesce(max(seq), 0) AS seq FROM events")
        faults = self._rows(newest, last["seq"] - NEWEST_EVENTS, EventKind.FAULT.value)
        first = next((row["seq"] for row in faults if row["fault"] in OF_MACHINES), None)
        if first is None:
            return []
        ended = "SELECT job_id, attempt AS number, at FROM events WHERE seq > ? AND kind = ? ORDER BY seq DESC LIMIT ?"
        query = (
            f"SELECT data, max(at) AS at FROM attempts JOIN ({ended}) USING (job_id, number) GROUP BY job_id, number"  # noqa: S608
        )
        rows = self._rows(query, first, EventKind.ENDED.value, NEWEST_ATTEMPTS)
        return self._decode(lambda row: replace(codec.attempt_from_row(row), ended_at=row["at"]), rows)

    def has_remote_jobs(self) -> bool:
        """Tell whether any job, also a removed one, was for a host: as `JobSpec.is_remote` does, without parsing it."""
        fields = ("$.image", "$.slurm", "$.resources.time")
        asked = " OR ".join(f"json_extract(spec, '{each}') IS NOT NULL" for each in fields)
        query = f"SELECT 1 FROM jobs WHERE {asked} OR json_extract(spec, '$.resources.nodes') > 1 LIMIT 1"  # noqa: S608
        return bool(self._rows(query))

    def cleared_places(self) -> dict[str, float]:
        """Return when a person gave hosts, nodes or GPUs another chance, by their names."""
        rows = self._rows("SELECT key, value FROM meta WHERE substr(key, 1, ?) = ?", len(CLEARED), CLEARED)
        return dict(self._decode(lambda row: (row["key"].removeprefix(CLEARED), float(row["value"])), rows))

    def bad_places(self, now: float) -> list[BadPlace]:
        """Return what one job or all jobs avoid now."""
        from rung.recovery.nodes.bad_places import find_bad_places

        return find_bad_places(self.ended_lately(), now, self.cleared_places())

    def site_surveys(self) -> dict[str, KeptSurvey]:
        """Return the last survey of each site, by its name."""
        rows = self._rows("SELECT key, value FROM meta WHERE substr(key, 1, ?) = ?", len(SURVEYED), SURVEYED)
        return dict(self._decode(lambda row: (row["key"].removeprefix(SURVEYED), _survey(row["value"])), rows))

    # Writing, inside a transaction

    def clear_place(self, name: str, *, at: float) -> None:
        """Write that what happened on a host, a node or a GPU up to now does not count any more."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"{CLEARED}{name}", repr(at)))

    def keep_survey(self, name: str, data: Mapping[str, Any], *, at: float) -> None:
        """Write what the survey of a site has shown, in place of the one before."""
        text = json.dumps({"at": at, "data": data}, allow_nan=False)
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"{SURVEYED}{name}", text))


def _survey(text: str) -> KeptSurvey:
    kept = json.loads(text)
    return KeptSurvey(float(kept["at"]), dict(kept["data"]))
