"""Says what a removal would do, or has done: as text for a person, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rung.jobs.model.terminal_text import clean
from rung.runner.files.tree import size_text
from rung.runner.seams.storage import DiskUse
from rung.runner.storage.plan import TREES, Plan, Removal, shown_place
from rung.runner.storage.remove import Removed
from rung.runner.views.tables import table


def use_text(use: DiskUse) -> str:
    return size_text(use.size) if use.complete else f"at least {size_text(use.size)}"


def plan_text(plan: Plan, width: int) -> str:
    """Return the table of what would be removed, what is kept, and which hosts could not be asked."""
    rows = [[each.job_id or "-", shown_place(each.where), use_text(each.use), _what(each)] for each in plan.removals]
    lines = [table(["JOB", "WHERE", "ON DISK", "WHAT"], rows, width)] if rows else []
    notes = [f"kept: {each.job_id} on {shown_place(each.where)}: {each.what} ({each.why})" for each in plan.kept]
    notes += [f"cannot be asked: {host}: {why}" for host, why in plan.unreachable.items()]
    notes.append(f"in all {use_text(plan.use)}, as `du` counts it" if rows else "nothing to remove")
    return "\n".join([*lines, *map(clean, notes)])


def _what(removal: Removal) -> str:
    count = len(removal.paths)
    return f"{count} {removal.what}" if removal.what == TREES or removal.paths != (".",) else removal.what


def plan_data(plan: Plan, removed: Removed | None) -> dict[str, Any]:
    """Return the same as data; `removed` None: nothing was removed."""
    done = removed.done if removed else []
    return {
        "planned": [_data(each) for each in plan.removals],
        "removed": [_data(each) for each in done],
        "kept": [asdict(each) for each in plan.kept],
        "unreachable": plan.unreachable,
        "failed": removed.failed if removed else [],
        "bytes": (removed or plan).use.size,
        "complete": (removed or plan).use.complete,
    }


def _data(removal: Removal) -> dict[str, Any]:
    about = {"job": removal.job_id, "where": removal.where, "what": removal.what, "paths": list(removal.paths)}
    return {**about, "bytes": removal.use.size, "complete": removal.use.complete}
