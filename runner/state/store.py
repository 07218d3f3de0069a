"""Writes and reads the store: jobs, attempts, verdicts, leases and append-only events, in one SQLite file (WAL).

A change of state and its event are written in one transaction. Nothing here decides, and nothing calls an engine.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rung.jobs.job import Attempt, Job, Outcome, advance, beside_last
from rung.jobs.model.checkpoint_verdict import CheckpointVerdict
from rung.jobs.model.errors import EngineError, StoreError
from rung.jobs.model.event import EventKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import job_id as make_id
from rung.jobs.model.state import JobState
from rung.runner.state import codec
from rung.runner.state.group_rows import GroupRows, SubmissionRows
from rung.runner.state.job_rows import JobRows
from rung.runner.state.listed_rows import Made
from rung.runner.state.migrations import MIGRATIONS
from rung.runner.state.place_rows import PlaceRows
from rung.runner.state.store_errors import store_error

if TYPE_CHECKING:
    from rung.jobs.spec.job_spec import JobSpec

# The longest wait for another process that writes.
BUSY_SECONDS = 10.0


@dataclass(frozen=True)
class Event:
    """A row of history. Rows are only added, never changed."""

    seq: int
    at: float
    job_id: str
    attempt: int | None
    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Lease:
    """A GPU that one attempt uses alone."""

    gpu: str
    host: str
    job_id: str
    attempt: int
    taken_at: float


@dataclass(frozen=True)
class Orphan:
    """An attempt that was given up: its host was unreachable, or its job ended beside it. It may still run there."""

    job_id: str
    attempt: int
    host: str
    since: float


class Store(JobRows, GroupRows, SubmissionRows, PlaceRows):
    """Reads and writes one store; every change goes through `transaction`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._translated_errors():
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise

    def _open(self) -> None:
        self._db.row_factory = sqlite3.Row
        # Checked before anything is set: a store of a newer version is not changed by one byte.
        version = self._version()
        self._db.execute("PRAGMA journal_mode = WAL")
        # A committed decision must survive a power cut, not only a killed process.
        self._db.execute("PRAGMA synchronous = FULL")
        if version < len(MIGRATIONS):
            self._migrate()

    def close(self) -> None:
        self._db.close()

    def _version(self) -> int:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StoreError(
                f"{self._path}: written by a newer Rung (store version {version}, this one knows {len(MIGRATIONS)}); "
                "use that version, nothing was changed"
            )
        return int(version)

    def _migrate(self) -> None:
        with self.transaction():
            version = self._version()
            for number, statements in enumerate(MIGRATIONS[version:], start=version + 1):
                for statement in statements:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {number}")
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('store_id', lower(hex(randomblob(6))))")

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn SQLite's errors into one line for a person."""
        try:
            yield
        except sqlite3.Error as error:
            raise store_error(self._path, error) from None

    @contextmanager
    def transaction(self) -> Iterator[Store]:
        """Write everything inside, or nothing."""
        with self._translated_errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self.look_for_changes()
                yield self
                self._db.execute("COMMIT")
            except BaseException:
                # Also after a commit that found no room: an open transaction would refuse the next one.
                if self._db.in_transaction:
                    with suppress(sqlite3.Error):
                        self._db.execute("ROLLBACK")
                if self._memory is not None:
                    self._memory.forget()  # some of it may never have been written
                raise

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        with self._translated_errors():
            return self._db.execute(query, values).fetchall()

    def _decode(self, make: Callable[[sqlite3.Row], Made], rows: Sequence[sqlite3.Row]) -> list[Made]:
        """Convert rows to data. A row that somebody else has changed becomes a StoreError."""
        try:
            return [make(row) for row in rows]
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            what = str(error).partition("\n")[0]
            raise StoreError(f"{self._path}: a row cannot be read ({what}); bring the store back from a copy") from None

    @property
    def store_id(self) -> str:
        return str(self._rows("SELECT value FROM meta WHERE key = 'store_id'")[0]["value"])

    # Reading

    def events(self, job_id: str | None = None, after: int = 0) -> list[Event]:
        where, values = ("AND job_id = ?", (job_id,)) if job_id else ("", ())
        rows = self._rows(f"SELECT * FROM events WHERE seq > ? {where} ORDER BY seq", after, *values)  # noqa: S608
        return self._decode(lambda row: Event(**{**dict(row), "data": dict(json.loads(row["data"]))}), rows)

    def verdicts(self, job_id: str) -> dict[str, CheckpointVerdict]:
        """Return the verdict on each checkpoint file, by its fingerprint."""
        rows = self._rows("SELECT fingerprint, data FROM verdicts WHERE job_id = ?", job_id)
        return dict(self._decode(lambda row: (str(row["fingerprint"]), codec.verdict_from_row(row)), rows))

    def leases(self) -> list[Lease]:
        return [Lease(**dict(row)) for row in self._rows("SELECT * FROM leases ORDER BY taken_at, gpu")]

    def orphans(self) -> list[Orphan]:
        return [Orphan(**dict(row)) for row in self._rows("SELECT * FROM stale ORDER BY since")]

    def validations(self, *, active: bool = False) -> list[tuple[int, str, dict[str, Any]]]:
        """Return number, digest and data of every validation, oldest first; `active`: only those without a verdict."""
        where = "WHERE open" if active else ""
        rows = self._rows(f"SELECT * FROM validations {where} ORDER BY number")  # noqa: S608
        return [(row["number"], row["digest"], json.loads(row["data"])) for row in rows]

    # Writing, all inside a transaction

    def add_job(self, spec: JobSpec, origin: Path, *, at: float, about: Mapping[str, Any] | None = None) -> Job:
        (sequence,) = self._db.execute("SELECT coalesce(max(seq), 0) + 1 FROM jobs").fetchone()
        knobs = spec.knobs.knobs()
        job = Job(make_id(spec.name, sequence), spec, JobState.QUEUED, "waiting for the controller", at, at, knobs)
        row = (job.id, sequence, spec.name, spec.model_dump_json(), str(origin), job.state.value, job.reason, at, at)
        self._db.execute("INSERT INTO jobs VALUES (?,?,?,?,?,?,?,?,?,?,0,0)", (*row, json.dumps(knobs.to_dict())))
        self._job_was_written(job.id)
        self.add_event(job.id, None, EventKind.SUBMITTED, {"name": spec.name, **(about or {})}, at=at)
        return job

    def move(self, job_id: str, to: JobState, *, reason: str, at: float) -> Job:
        """Change the state of a job and write the event for it. Nothing else changes a state."""
        before = self.job(job_id)
        job = advance(before, to, reason=reason, at=at)
        row = (to.value, reason, at, job_id)
        self._db.execute("UPDATE jobs SET state = ?, reason = ?, updated_at = ? WHERE id = ?", row)
        self._job_was_written(job_id)
        if job.ended:
            for trial in beside_last(self.attempts(job_id)):
                # Its GPUs are free only when it has certainly ended.
                self.put_attempt(replace(trial, outcome=Outcome.CANCELLED, ended_at=at))
                self.give_up(trial, at=at)
                data = {"outcome": Outcome.CANCELLED, "exit_code": None, "furthest_step": trial.furthest_step}
                self.add_event(job_id, trial.number, EventKind.ENDED, data, at=at)
            self.release(job_id)
        self.add_event(job_id, None, EventKind.STATE, {"from": before.state, "to": to, "reason": reason}, at=at)
        return job

    def set_reason(self, job_id: str, reason: str) -> None:
        """Change the reason that a job shows; its state stays."""
        self._db.execute("UPDATE jobs SET reason = ? WHERE id = ?", (reason, job_id))
        self._job_was_written(job_id)

    def reopen(self, job_id: str, knobs: Knobs, settled: int, edited: Sequence[str | None] = (None, None)) -> None:
        """Write what a person set: knobs, an edited spec and its folder. Budgets no longer count earlier attempts."""
        row = (*edited, json.dumps(knobs.to_dict()), settled, job_id)
        changes = "spec = coalesce(?, spec), origin = coalesce(?, origin), knobs = ?, settled = ?, cancel = 0"
        self._db.execute(f"UPDATE jobs SET {changes} WHERE id = ?", row)  # noqa: S608
        self._job_was_written(job_id)

    def change_knobs(self, job_id: str, knobs: Knobs) -> None:
        """Write other knobs for a job that has not been launched yet."""
        self._db.execute("UPDATE jobs SET knobs = ? WHERE id = ?", (json.dumps(knobs.to_dict()), job_id))
        self._job_was_written(job_id)

    def add_validation(self, digest: str, data: Mapping[str, Any]) -> int:
        row = (digest, json.dumps(codec.finite_or_text(data), allow_nan=False))
        return int(self._db.execute("INSERT INTO validations (digest, open, data) VALUES (?,1,?)", row).lastrowid or 0)

    def put_validation(self, number: int, data: Mapping[str, Any], *, active: bool) -> None:
        row = (int(active), json.dumps(codec.finite_or_text(data), allow_nan=False), number)
        self._db.execute("UPDATE validations SET open = ?, data = ? WHERE number = ?", row)

    def request_cancel(self, job_id: str) -> None:
        self._db.execute("UPDATE jobs SET cancel = 1 WHERE id = ?", (job_id,))
        self._job_was_written(job_id)

    def put_verdict(self, job_id: str, fingerprint: str, verdict: CheckpointVerdict) -> None:
        data = json.dumps(codec.verdict_to_dict(verdict))
        self._db.execute("INSERT OR IGNORE INTO verdicts VALUES (?,?,?)", (job_id, fingerprint, data))

    def lease(self, attempt: Attempt, *, at: float, beside: bool = False) -> None:
        """Lease its GPUs to an attempt; end all other leases of the job unless it runs `beside` them."""
        if not beside:
            self.release(attempt.job_id)
        for host, gpu in [(place.host, gpu) for place in attempt.places for gpu in place.gpus]:
            row = (gpu.uuid, host, attempt.job_id, attempt.number, at)
            try:
                self._db.execute("INSERT INTO leases VALUES (?,?,?,?,?)", row)
            except sqlite3.IntegrityError:
                leased = f"{host}: {gpu.name} {gpu.uuid} is leased already; nothing was done"
                raise EngineError(leased) from None

    def release(self, job_id: str) -> None:
        """End the leases of a job, but not those of attempts that may still run on an unreachable host."""
        kept = "attempt NOT IN (SELECT attempt FROM stale WHERE stale.job_id = leases.job_id)"
        self._db.execute(f"DELETE FROM leases WHERE job_id = ? AND {kept}", (job_id,))  # noqa: S608

    def give_up(self, attempt: Attempt, *, at: float) -> None:
        """Write that an attempt no longer counts, although its host could not be asked to end it."""
        for place in attempt.places:
            row = (attempt.job_id, attempt.number, place.host, at)
            self._db.execute("INSERT OR IGNORE INTO stale VALUES (?,?,?,?)", row)

    def remove_orphan(self, orphan: Orphan) -> None:
        """Free what an attempt that was given up had leased: it is certainly gone from its host."""
        key = (orphan.job_id, orphan.attempt, orphan.host)
        self._db.execute("DELETE FROM leases WHERE job_id = ? AND attempt = ? AND host = ?", key)
        self._db.execute("DELETE FROM stale WHERE job_id = ? AND attempt = ? AND host = ?", key)

    def add_event(self, job_id: str, attempt: int | None, kind: str, data: Mapping[str, Any], *, at: float) -> None:
        row = (at, job_id, attempt, kind, json.dumps(codec.finite_or_text(data), allow_nan=False))
        self._db.execute("INSERT INTO events (at, job_id, attempt, kind, data) VALUES (?,?,?,?,?)", row)
