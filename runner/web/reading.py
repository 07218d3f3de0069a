"""Reads the store for people who look on: it cannot write, and its queries stay quick for thousands of jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rung.jobs.job import Job
from rung.jobs.model.errors import StoreError
from rung.jobs.model.event import EventKind
from rung.jobs.model.state import JobState
from rung.recovery.attention.needs import STARTED, Need, find_needs, most_urgent_first, set_aside
from rung.runner.state import codec
from rung.runner.state.migrations import MIGRATIONS
from rung.runner.state.store import BUSY_SECONDS, Event, Store

# A failure that nobody has looked at for so long is no news; the list of failed jobs still has it.
RECENT_SECONDS = 7 * 86_400.0
MOST_FAILED = 10
# Jobs that run at the same time; more than these are not examined for what they need.
MOST_ACTIVE = 200


class ReadStore(Store):
    """The store, opened so that nothing can be written. A reader of a WAL never makes the controller wait."""

    def __init__(self, path: Path, *, any_thread: bool = False) -> None:
        """Open it for one thread; `any_thread`: for several, which the caller keeps from using it at the same time."""
        self._path = path
        with self._translated_errors():
            address = f"{path.absolute().as_uri()}?mode=ro"
            self._db = sqlite3.connect(
                address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=not any_thread
            )
            try:
                self._db.row_factory = sqlite3.Row
                if self._version() < len(MIGRATIONS):
                    raise StoreError(f"{path}: written by an older Rung; start this command again")
            except BaseException:
                self._db.close()
                raise

    def job_page(self, states: Sequence[str], limit: int, offset: int) -> list[Job]:
        """Return some jobs, newest first; no states: those of all."""
        where = f"WHERE state IN ({_marks(states)})" if states else ""
        query = f"SELECT * FROM listed_jobs {where} ORDER BY seq DESC LIMIT ? OFFSET ?"  # noqa: S608
        return self._decode(codec.job_from_row, self._rows(query, *states, limit, offset))

    def state_counts(self) -> dict[str, int]:
        rows = self._rows("SELECT state, count(*) AS jobs FROM listed_jobs GROUP BY state")
        return {str(row["state"]): int(row["jobs"]) for row in rows}

    def waits_for_hosts(self, ids: Sequence[str]) -> dict[str, dict[int, float]]:
        """Return after which attempts each of these jobs began to wait for a host, and when."""
        query = f"SELECT job_id, attempt, at FROM events WHERE kind = ? AND job_id IN ({_marks(ids)})"  # noqa: S608
        found: dict[str, dict[int, float]] = {job_id: {} for job_id in ids}
        for row in self._rows(query, EventKind.WAITING_FOR_HOST.value, *ids):
            found[str(row["job_id"])].setdefault(int(row["attempt"] or 0), float(row["at"]))
        return found

    def needs(self, now: float) -> list[Need]:
        """Return what needs a person in the newest jobs, the most urgent first."""
        failed = self.job_page([JobState.FAILED.value], MOST_FAILED, 0)
        active = self.job_page([state.value for state in STARTED], MOST_ACTIVE, 0)
        jobs = [*(job for job in failed if now - job.updated_at < RECENT_SECONDS), *active]
        ids = [job.id for job in jobs]
        attempts, waits = self.attempts_of(ids), self.waits_for_hosts(ids)
        found = [need for job in jobs for need in find_needs(job, attempts[job.id], waits[job.id])]
        return most_urgent_first([*found, *set_aside(self.bad_places(now))])

    def last_event(self) -> int:
        return int(self._rows("SELECT coalesce(max(seq), 0) AS seq FROM events")[0]["seq"])

    def next_events(self, after: int, limit: int) -> list[Event]:
        """Return the next events of all jobs, without their data."""
        query = "SELECT seq, at, job_id, attempt, kind FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        return [Event(**dict(row), data={}) for row in self._rows(query, after, limit)]

    def change_count(self) -> int:
        """Return a number that changes when another process has written to the store."""
        return int(self._rows("PRAGMA data_version")[0][0])


def _marks(values: Sequence[str]) -> str:
    return ",".join("?" * len(values))


@contextmanager
def snapshot(path: Path) -> Iterator[ReadStore]:
    """Open the store for one page: everything read inside is of the same moment."""
    store = ReadStore(path)
    try:
        store._db.execute("BEGIN")
        yield store
    finally:
        store.close()
