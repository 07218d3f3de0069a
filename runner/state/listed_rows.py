"""Reads lists of jobs and their attempts, and writes which jobs are removed, as a part of the store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import UsageError
from rung.jobs.model.state import JobState
from rung.runner.state import codec
from rung.runner.state.outbox_rows import OutboxRows

# The same words as in the index `active_jobs`, which SQLite uses only for these.
ACTIVE = "state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')"
# The ids are one JSON array: a list of any length is one query.
AMONG = "IN (SELECT value FROM json_each(?))"

Made = TypeVar("Made")


@dataclass(frozen=True)
class ListedJob:
    """What decides whether a list shows a job. Thousands are read at once, so that only those shown are read whole."""

    id: str
    name: str
    state: JobState
    created_at: float


class ListedRows(OutboxRows):
    """The part of the store that knows lists of jobs, and removed jobs, which no list shows."""

    def _decode(self, make: Callable[[sqlite3.Row], Made], rows: Sequence[sqlite3.Row]) -> list[Made]:
        raise NotImplementedError

    def active_count(self) -> int:
        return int(self._rows(f"SELECT count(*) AS jobs FROM listed_jobs WHERE {ACTIVE}")[0]["jobs"])  # noqa: S608

    def listed_jobs(self) -> list[ListedJob]:
        """Return every job that is not removed, the newest last."""
        rows = self._rows("SELECT id, name, state, created_at FROM listed_jobs ORDER BY seq")
        return self._decode(lambda row: ListedJob(row[0], row[1], JobState(row[2]), row[3]), rows)

    def jobs_of(self, ids: Sequence[str]) -> list[Job]:
        """Return these jobs, the newest last."""
        query = f"SELECT * FROM jobs WHERE id {AMONG} ORDER BY seq"  # noqa: S608
        return self._decode(codec.job_from_row, self._rows(query, json.dumps(ids)))

    def attempts_of(self, ids: Sequence[str]) -> dict[str, list[Attempt]]:
        """Return the attempts of each of these jobs."""
        query = f"SELECT data FROM attempts WHERE job_id {AMONG} ORDER BY job_id, number"  # noqa: S608
        attempts = self._decode(codec.attempt_from_row, self._rows(query, json.dumps(ids)))
        found = {job_id: list(group) for job_id, group in groupby(attempts, key=lambda each: each.job_id)}
        return {job_id: found.get(job_id, []) for job_id in ids}

    def jobs_with_trials(self) -> set[str]:
        """Return the jobs that are not removed and have, or had, trials."""
        query = (
            "SELECT DISTINCT job_id FROM attempts JOIN listed_jobs ON job_id = id "
            "WHERE json_extract(data, '$.trial.index') IS NOT NULL "
            "AND NOT coalesce(json_extract(data, '$.trial.goes_on'), 0)"
        )
        return {str(row["job_id"]) for row in self._rows(query)}

    def refuse_removed(self, job_id: str) -> None:
        """Refuse to use a job again whose files are being removed, or are gone."""
        if self._rows("SELECT 1 FROM removals WHERE job_id = ?", job_id):
            raise UsageError(f"job {job_id} is being removed; `rung rm {job_id}` removes what is left of it")

    def begin_removal(self, job_id: str, *, at: float) -> None:
        """Write that the files of a job are removed from now on; repeated, nothing changes."""
        self._db.execute("INSERT OR IGNORE INTO removals VALUES (?,?,NULL)", (job_id, at))

    def end_removal(self, job_id: str, *, at: float) -> None:
        """Write that all files of a job are gone: no list shows it any more."""
        self._db.execute("UPDATE removals SET ended_at = ? WHERE job_id = ?", (at, job_id))
        self._db.execute("DELETE FROM verdicts WHERE job_id = ?", (job_id,))
