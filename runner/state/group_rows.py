"""Reads and writes how jobs were submitted: from where, and in which group of a grid, as parts of the store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rung.jobs.model.errors import UsageError
from rung.jobs.model.event import EventKind
from rung.jobs.model.paths import job_id as make_id
from rung.runner.state.listed_rows import ACTIVE, ListedRows


@dataclass(frozen=True)
class Membership:
    """The group of a job, how many of its jobs may run at once, and what the grid set for this one."""

    group: str
    at_once: int | None
    settings: Mapping[str, str]


class GroupRows(ListedRows):
    """The part of the store that knows groups of jobs."""

    def groups(self, *, limited: bool = False) -> dict[str, Membership]:
        """Return the group of every job that is in one, by the job's id; `limited`: active ones with a limit only."""
        query = (
            "SELECT job_id, group_id, at_once, settings FROM grouped_jobs JOIN job_groups ON job_groups.id = group_id"
        )
        active = f"JOIN jobs ON jobs.id = job_id AND {ACTIVE}"
        rows = self._rows(f"{query} {active} WHERE at_once IS NOT NULL" if limited else query)
        return {row["job_id"]: Membership(row["group_id"], row["at_once"], json.loads(row["settings"])) for row in rows}

    def has_group(self, group: str) -> bool:
        return bool(self._rows("SELECT 1 FROM job_groups WHERE id = ?", group))

    def refuse_unknown_group(self, group: str) -> None:
        known = [str(row["id"]) for row in self._rows("SELECT id FROM job_groups ORDER BY created_at DESC, id LIMIT 5")]
        if not self.has_group(group):
            which = f"the newest are {', '.join(known)}" if known else "`rung launch --grid` makes one"
            raise UsageError(f"there is no group {group!r}; {which}")

    def settings_of(self, job_id: str) -> dict[str, str]:
        """Return what the grid set for a job; empty for a job that was launched alone."""
        rows = self._rows("SELECT settings FROM grouped_jobs WHERE job_id = ?", job_id)
        return dict(json.loads(rows[0]["settings"])) if rows else {}

    # Writing, inside a transaction

    def add_group(self, name: str, at_once: int | None, *, at: float) -> str:
        """Add a group that is named after its job file; return its id."""
        (number,) = self._db.execute("SELECT count(*) + 1 FROM job_groups").fetchone()
        group = make_id(f"{name[:30]} grid", number)
        self._db.execute("INSERT INTO job_groups VALUES (?,?,?)", (group, at_once, at))
        return group

    def put_in_group(self, job_id: str, group: str, settings: Mapping[str, str]) -> None:
        self._db.execute("INSERT INTO grouped_jobs VALUES (?,?,?)", (job_id, group, json.dumps(dict(settings))))


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
