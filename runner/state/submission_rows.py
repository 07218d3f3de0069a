"""Reads where a job was submitted, as a part of the store."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from rung.jobs.model.event import EventKind


class SubmissionRows:
    """The part of the store that knows the folder and the shell a job was submitted from."""

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        raise NotImplementedError

    def origin(self, job_id: str) -> Path:
        """Return the folder the job file lay in."""
        return Path(self._rows("SELECT origin FROM jobs WHERE id = ?", job_id)[0]["origin"])

    def python(self, job_id: str) -> str | None:
        """Return the Python of the shell that submitted a job; None: nobody recorded it."""
        query = "SELECT data FROM events WHERE job_id = ? AND kind = ? ORDER BY seq LIMIT 1"
        found = self._rows(query, job_id, EventKind.SUBMITTED.value)
        python = json.loads(found[0]["data"]).get("python") if found else None
        return python if isinstance(python, str) else None
