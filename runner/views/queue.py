"""Builds the list of jobs for `rung queue`: the rows, the filters, and a table that fits the terminal."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from rung.jobs.job import Attempt, Job, recoveries
from rung.jobs.model.gpu import Member, gpu_type
from rung.runner.state.codec import finite_or_text
from rung.runner.state.group_rows import Membership
from rung.runner.state.listed_rows import ListedJob
from rung.runner.state.store import Store
from rung.runner.views.costs import busy_seconds, hosts_text, runs_until
from rung.runner.views.tables import column_widths, table
from rung.runner.views.times import age_text, duration_text, iso_utc

HEADERS = ("ID", "NAME", "STATE", "AGE", "TIME", "STEP", "LOSS", "RECOVERIES", "HOST", "REASON")
# Which columns are left out first, each while the reason has less room than this. The id contains the name, and
# `rung history` shows the rest.
LEFT_OUT = (("NAME", 24), ("HOST", 24), ("RECOVERIES", 24), ("LOSS", 24), ("STEP", 24), ("TIME", 12), ("AGE", 12))
WIDE = 1_000_000


@dataclass(frozen=True)
class QueueFilter:
    """Which jobs to list; the default is all of them."""

    states: tuple[str, ...] = ()
    name: str | None = None
    since: float | None = None
    limit: int | None = None
    group: str | None = None

    def select(self, store: Store, groups: Mapping[str, Membership]) -> list[Job]:
        """Return the jobs to list, in the order in which they came; `limit` keeps the newest."""
        members = {job_id for job_id, member in groups.items() if member.group == self.group}
        found = [
            job.id for job in store.listed_jobs() if self._wanted(job) and (self.group is None or job.id in members)
        ]
        return store.jobs_of(found[-self.limit :] if self.limit else found)

    def _wanted(self, job: ListedJob) -> bool:
        return (
            (not self.states or job.state in self.states)
            and (self.name is None or fnmatchcase(job.name, self.name))
            and (self.since is None or job.created_at >= self.since)
        )


def queue(store: Store, now: float, wanted: QueueFilter | None = None) -> list[dict[str, Any]]:
    """Return jobs with their states, the newest last."""
    groups = store.groups()
    jobs = (wanted or QueueFilter()).select(store, groups)
    attempts = store.attempts_of([job.id for job in jobs])
    return [{**job_row(job, attempts[job.id], now), **_group(groups.get(job.id))} for job in jobs]


def _group(member: Membership | None) -> dict[str, Any]:
    return {"group": member.group if member else None, "settings": dict(member.settings) if member else {}}


def job_row(job: Job, attempts: Sequence[Attempt], now: float) -> dict[str, Any]:
    last, shown = attempts[-1] if attempts else None, job.shown
    return {
        "id": job.id,
        "name": shown.name,
        "state": job.state.value,
        "reason": job.reason,
        "host": last.host if last else None,
        "node": last.node if last else None,
        "gpus": [gpu.name for gpu in last.gpus] if last else [],
        "members": [_member(each) for each in last.members] if last else [],
        "image": last.image if last else None,
        "priority": shown.priority,
        "step": max((a.furthest_step for a in attempts if a.furthest_step is not None), default=None),
        "loss": finite_or_text(last.loss) if last else None,
        "recoveries": len(recoveries(attempts)),
        "attempt": last.number if last else None,
        "verdict": last.verdict if last else None,
        "not_resumed": last.not_resumed if last else None,
        "run_seconds": busy_seconds(attempts, runs_until(job, now)),
        "submitted_at": job.created_at,
        "submitted": iso_utc(job.created_at),
        "updated_at": job.updated_at,
    }


def terminal_columns() -> int:
    """Return the width to fit: COLUMNS, else that of the terminal, else 80."""
    return shutil.get_terminal_size().columns


def queue_table(rows: Sequence[Mapping[str, Any]], width: int, now: float) -> str:
    """Return the jobs as a table that fits the width: the reason is shortened, and other columns are left out."""
    cells = [_cells(row, now) for row in rows]
    shown, longest = list(HEADERS), max(len(row["REASON"]) for row in cells)
    widths = {name: column_widths([name], _columns(cells, [name])) for name in HEADERS[:-1]}
    for name, room in LEFT_OUT:
        if width - sum(widths[each] for each in shown[:-1]) < min(room, longest):
            shown.remove(name)
    return table(shown, _columns(cells, shown), width)


def _cells(row: Mapping[str, Any], now: float) -> dict[str, Any]:
    return {
        **{name: row.get(name.lower()) for name in HEADERS},
        "AGE": age_text(now - row["submitted_at"]),
        "TIME": duration_text(row["run_seconds"]) if row["attempt"] else None,
        "HOST": _host(hosts_text(row), row["node"], row["gpus"]),
    }


def _member(member: Member) -> dict[str, Any]:
    return {"host": member.host, "gpus": [gpu.name for gpu in member.gpus]}


def _columns(cells: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[list[Any]]:
    return [[row[name] for name in names] for row in cells]


def _host(host: str | None, node: str | None, gpus: Sequence[str]) -> str | None:
    """Return a host, or a site and its node, with the GPU types in use there."""
    place = f"{host}/{node}" if host and node else host
    return f"{place} ({', '.join(gpu_type(name) for name in gpus)})" if place and gpus else place
