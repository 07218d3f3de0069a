"""Reads and writes which jobs are removed, or about to be, as a part of the store."""

from __future__ import annotations

from rung.jobs.model.errors import UsageError
from rung.runner.state.outbox_rows import OutboxRows


class RemovalRows(OutboxRows):
    """The part of the store that knows removed jobs."""

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
