"""Reads jobs and attempts, and writes attempts, as a part of the store.

The controller has what it reads kept in memory until it is written, here or by another process. It also keeps progress
there for a moment: every reader of this store sees it at once, and the disk gets that of all jobs together.
"""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import UsageError
from rung.runner.state import codec
from rung.runner.state.listed_rows import ACTIVE, Made


@dataclass
class Memory:
    """What one controller has read."""

    # SQLite's own count of what other connections have written.
    version: int = -1
    # All active jobs, oldest first; None: they have to be read again.
    active: list[Job] | None = None
    jobs: dict[str, Job] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    # Each job with the row it was made from: the same row gives the same object again.
    made: dict[str, tuple[tuple[Any, ...], Job]] = field(default_factory=dict)
    # Attempts with progress that is not written yet.
    progress: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    # What makes the texts of these.
    texts: codec.AttemptTexts = field(default_factory=codec.AttemptTexts)
    # The jobs that were written since somebody asked.
    written: set[str] = field(default_factory=set)

    def forget(self) -> None:
        """Forget what was read; what is not written yet stays."""
        self.active = None
        self.jobs.clear()
        self.attempts.clear()

    def job_was_written(self, job_id: str) -> None:
        self.active = None
        self.jobs.pop(job_id, None)
        self.written.add(job_id)

    def with_progress(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        return [self.progress.get((each.job_id, each.number), each) for each in attempts]

    def job_from_row(self, row: sqlite3.Row) -> Job:
        values, known = tuple(row), self.made.get(row["id"])
        if known is None or known[0] != values:
            known = self.made[row["id"]] = (values, codec.job_from_row(row))
        return known[1]


class JobRows:
    """The part of the store that knows jobs and their attempts."""

    _db: sqlite3.Connection
    # None: everything is read anew each time.
    _memory: Memory | None = None

    @abstractmethod
    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]: ...

    @abstractmethod
    def _translated_errors(self) -> AbstractContextManager[None]: ...

    @abstractmethod
    def _decode(self, make: Callable[[sqlite3.Row], Made], rows: Sequence[sqlite3.Row]) -> list[Made]: ...

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]: ...

    # The memory

    def remember(self) -> None:
        """Keep what is read from now on: for the controller, which alone writes attempts of active jobs."""
        self._memory = Memory()

    def look_for_changes(self) -> None:
        """Forget what was read before another process wrote to the store."""
        if self._memory is not None:
            version = int(self._rows("PRAGMA data_version")[0][0])
            if version != self._memory.version:
                self._memory.version = version
                self._memory.forget()

    def take_written(self) -> set[str]:
        """Return the jobs that were written, they or their attempts, since this was last asked."""
        if self._memory is None:
            return set()
        found, self._memory.written = self._memory.written, set()
        return found

    def _job_was_written(self, job_id: str) -> None:
        if self._memory is not None:
            self._memory.job_was_written(job_id)

    # Reading

    def jobs(self, *, active: bool = False, removed: bool = False) -> list[Job]:
        memory = self._memory
        if memory is None or not active:
            return self._decode(codec.job_from_row, self._job_rows(active=active, removed=removed))
        if memory.active is None:
            memory.active = self._decode(memory.job_from_row, self._job_rows(active=True, removed=removed))
            memory.jobs = {job.id: job for job in memory.active}
            memory.made = {job_id: memory.made[job_id] for job_id in memory.jobs}
            memory.attempts = {job_id: kept for job_id, kept in memory.attempts.items() if job_id in memory.jobs}
            memory.texts.keep_only(memory.jobs.keys())
        return list(memory.active)

    def _job_rows(self, *, active: bool, removed: bool) -> list[sqlite3.Row]:
        where = f"WHERE {ACTIVE}" if active else ""
        return self._rows(f"SELECT * FROM {'jobs' if removed else 'listed_jobs'} {where} ORDER BY seq")  # noqa: S608

    def job(self, job_id: str) -> Job:
        if self._memory is not None and job_id in self._memory.jobs:
            return self._memory.jobs[job_id]
        return self._job(job_id, "SELECT * FROM jobs WHERE id = ?", job_id)

    def find(self, name: str) -> Job:
        """Return the job with this id, or the newest one of this name."""
        query = "SELECT * FROM listed_jobs WHERE id = ? OR name = ? ORDER BY id = ? DESC, seq DESC LIMIT 1"
        return self._job(name, query, name, name, name)

    def has_job(self, name: str) -> bool:
        return bool(self._rows("SELECT 1 FROM listed_jobs WHERE id = ? OR name = ?", name, name))

    def _job(self, name: str, query: str, *values: str) -> Job:
        rows = self._rows(query, *values)
        if not rows:
            raise UsageError(f"there is no job {name!r}; `rung queue` lists them")
        return self._decode(codec.job_from_row, rows)[0]

    def attempts(self, job_id: str) -> list[Attempt]:
        memory = self._memory
        if memory is not None and job_id in memory.attempts:
            return list(memory.attempts[job_id])
        rows = self._rows("SELECT data FROM attempts WHERE job_id = ? ORDER BY number", job_id)
        found = self._decode(codec.attempt_from_row, rows)
        if memory is not None:
            found = memory.with_progress(found)
            if job_id in memory.jobs:  # an ended job is read rarely, and would be kept for ever
                memory.attempts[job_id] = list(found)
        return found

    def attempts_by_job(self) -> Iterator[list[Attempt]]:
        """Yield the attempts of every job, one list per job, in the order of their numbers.

        Only those of one job are in memory: there may be thousands of jobs, and the controller asks for the ledger.
        """
        with self._translated_errors():
            rows = self._db.execute("SELECT job_id, data FROM attempts ORDER BY job_id, number")
            for _, group in groupby(rows, key=lambda row: row["job_id"]):
                attempts = self._decode(codec.attempt_from_row, list(group))
                yield self._memory.with_progress(attempts) if self._memory is not None else attempts

    # Writing

    def put_attempt(self, attempt: Attempt) -> None:
        """Write an attempt; inside a transaction."""
        self._put(attempt, codec.attempt_to_json(attempt))
        if self._memory is not None:
            self._memory.progress.pop((attempt.job_id, attempt.number), None)
            self._memory.attempts.pop(attempt.job_id, None)
            self._memory.written.add(attempt.job_id)

    def _put(self, attempt: Attempt, text: str) -> None:
        row = (attempt.job_id, attempt.number, text)
        self._db.execute("INSERT INTO attempts VALUES (?,?,?) ON CONFLICT DO UPDATE SET data = excluded.data", row)

    def keep_progress(self, attempt: Attempt) -> None:
        """Keep the progress of an attempt, to be written with that of the others; a killed controller reads it again.

        Outside of a transaction. Without a memory it is written at once.
        """
        if self._memory is None:
            with self.transaction():
                self._put(attempt, codec.attempt_to_json(attempt))
            return
        self._memory.progress[attempt.job_id, attempt.number] = attempt
        if attempt.job_id in self._memory.attempts:
            known = self._memory.attempts[attempt.job_id]
            self._memory.attempts[attempt.job_id] = self._memory.with_progress(known)

    def write_progress(self) -> None:
        """Write the progress that is kept, of all attempts in one transaction."""
        if self._memory is None or not self._memory.progress:
            return
        with self.transaction():
            for attempt in self._memory.progress.values():
                self._put(attempt, self._memory.texts.of(attempt))
        self._memory.progress.clear()
