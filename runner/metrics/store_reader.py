"""Reads the figures of the store for the metrics, with a connection that cannot write."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from rung.jobs.model.errors import StoreError
from rung.jobs.model.paths import HomePaths
from rung.runner.hosts.this_machine import HERE
from rung.runner.metrics.job_counts import COUNTED_EVENTS, AttemptFacts, Counts, EventFacts, count_job
from rung.runner.state.migrations import MIGRATIONS
from rung.runner.state.store_errors import store_error

BUSY_SECONDS = 10.0
# The version of the store that has everything which is read here.
OLDEST = 7
# How many jobs one query names; SQLite allows a limited number of values.
AT_ONCE = 500
ATTEMPT_FIELDS = {
    "outcome": "$.outcome",
    "rung": "$.rung",
    "by_person": "$.by_person",
    "ended_by": "$.ended_by",
    "after_fault": "$.after_fault",
    "fault": "$.fault.kind",
    "furthest_step": "$.furthest_step",
    "resumed_step": "$.resumed_step",
    "planned_step": "$.planned_step",
    "first_step": "$.first_step",
    "trial": "$.trial.index",
    "won": "$.trial.won",
    "goes_on": "$.trial.goes_on",
}
ACTIVE = "state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')"


class StoreReader:
    """One moment of the store: every query sees the same rows."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def store_id(self) -> str:
        return str(self._one("SELECT value FROM meta WHERE key = 'store_id'"))

    def last_event(self) -> int:
        return int(self._one("SELECT coalesce(max(seq), 0) FROM events"))

    def jobs_by_state(self) -> dict[str, int]:
        """Return how many jobs `rung queue` lists in each state."""
        return dict(self._db.execute("SELECT state, count(*) FROM listed_jobs GROUP BY state").fetchall())

    def submitted(self) -> int:
        return int(self._one("SELECT count(*) FROM jobs"))

    def leased_gpus(self) -> dict[str, int]:
        return dict(self._db.execute("SELECT host, count(*) FROM leases GROUP BY host ORDER BY host").fetchall())

    def hosts_in_use(self) -> dict[str, bool]:
        """Return the hosts that an active job runs on, and whether each answers."""
        # CROSS JOIN: the few active jobs first, not all attempts.
        query = f"""SELECT json_extract(data, '$.host'), max(json_extract(data, '$.unreachable_since') IS NOT NULL)
            FROM jobs CROSS JOIN attempts ON jobs.id = job_id WHERE {ACTIVE}
            AND json_extract(data, '$.outcome') = 'pending'
            -- An older store has no engine there: an attempt with an image is on a host.
            AND coalesce(json_extract(data, '$.engine'), json_extract(data, '$.image')) <> ?
            GROUP BY 1 ORDER BY 1"""  # noqa: S608
        return {str(host): not away for host, away in self._db.execute(query, (HERE.engine.name,))}

    def counts_since(self, event: int) -> dict[str, Counts]:
        """Return the counts of every job that has a later event than this one, or is active."""
        query = f"SELECT job_id FROM events WHERE seq > ? UNION SELECT id FROM jobs WHERE {ACTIVE}"  # noqa: S608
        jobs = [str(job) for (job,) in self._db.execute(query, (event,))]
        return {
            job: counts for at in range(0, len(jobs), AT_ONCE) for job, counts in self._counts(jobs[at : at + AT_ONCE])
        }

    def _counts(self, jobs: Sequence[str]) -> Iterator[tuple[str, Counts]]:
        attempts, events = self._attempts(jobs), self._events(jobs)
        for job in jobs:
            yield job, count_job(attempts[job], events[job])

    def _attempts(self, jobs: Sequence[str]) -> dict[str, list[AttemptFacts]]:
        paths = ", ".join(f"'{path}'" for path in ATTEMPT_FIELDS.values())
        query = f"SELECT job_id, number, json_extract(data, {paths}) FROM attempts WHERE job_id IN ({_marks(jobs)})"  # noqa: S608
        found: dict[str, list[AttemptFacts]] = defaultdict(list)
        for job, number, text in self._db.execute(f"{query} ORDER BY job_id, number", jobs):
            found[job].append(_attempt_facts(number, text))
        return found

    def _events(self, jobs: Sequence[str]) -> dict[str, list[EventFacts]]:
        kinds = [str(kind) for kind in COUNTED_EVENTS]
        query = f"""SELECT job_id, at, kind, attempt, CASE kind WHEN 'state' THEN json_extract(data, '$.to') END
            FROM events WHERE job_id IN ({_marks(jobs)}) AND kind IN ({_marks(kinds)}) ORDER BY job_id, seq"""  # noqa: S608
        found: dict[str, list[EventFacts]] = defaultdict(list)
        for job, at, kind, attempt, to in self._db.execute(query, (*jobs, *kinds)):
            found[job].append(EventFacts(at, kind, attempt, to))
        return found

    def _one(self, query: str) -> Any:
        return self._db.execute(query).fetchone()[0]


@contextmanager
def reading(paths: HomePaths) -> Iterator[StoreReader]:
    """Open the store to read it: nothing in it can be changed, and a controller never waits for it."""
    try:
        db = sqlite3.connect(f"file:{quote(str(paths.store))}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        try:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if not OLDEST <= version <= len(MIGRATIONS):
                raise StoreError(_other_version(paths, version))
            db.execute("BEGIN")
            yield StoreReader(db)
        finally:
            db.close()
    except sqlite3.Error as error:
        raise store_error(paths.store, error) from None


def _other_version(paths: HomePaths, version: int) -> str:
    if version < OLDEST:
        return f"{paths.store}: written by an older Rung; `rung queue` brings it to this version"
    return f"{paths.store}: written by a newer Rung (store version {version}); use that version"


def _attempt_facts(number: int, text: str) -> AttemptFacts:
    values: dict[str, Any] = dict(zip(ATTEMPT_FIELDS, json.loads(text), strict=True))
    values |= {name: bool(values[name]) for name in ("by_person", "won", "goes_on")}
    return AttemptFacts(**{**values, "number": number, "trial": values["trial"] is not None})


def _marks(values: Sequence[str]) -> str:
    return ",".join("?" * len(values))
