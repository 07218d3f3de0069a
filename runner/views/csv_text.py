"""Writes jobs and attempts as CSV (RFC 4180) for spreadsheets and other programs. Prints nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rung.jobs.model.knobs import KNOB_NAMES
from rung.jobs.model.terminal_text import clean

# A spreadsheet takes a cell that begins so for a formula, and logs, file names and hosts are written by others.
FORMULA = ("=", "+", "-", "@")
# Numbers that JSON cannot hold are text. They are no formulas, and other programs read them as numbers.
NOT_FINITE = ("nan", "inf", "-inf")
# Columns may be added at the end. Those that are there stay in their places.
QUEUE = (
    *("id", "name", "state", "reason", "host", "gpus", "image", "priority", "step", "loss", "recoveries", "attempt"),
    *("verdict", "not_resumed", "run_seconds", "submitted", "group", "settings"),
)
ATTEMPTS = (
    *("job", "name", "attempt", "host", "gpus", "image", "rung", "trial", "by_person", "because", "after_fault"),
    *("resumed_from", "resumed_step", "first_step", "furthest_step", "total_steps", "steps_made", "steps_lost"),
    *("fault", "fault_step", "evidence", "outcome", "exit_code", "verdict", "verdict_why", "loss", "started", "ended"),
    *("seconds", "seconds_lost", "gpu_seconds", "log", *(f"asked_{name}" for name in KNOB_NAMES), "gpus_asked"),
)


def queue_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the jobs of `rung queue`, one line each."""
    return _csv(QUEUE, ({**row, "settings": _settings(row["settings"])} for row in rows))


def history_csv(data: Mapping[str, Any]) -> str:
    """Return the attempts of a job, one line each."""
    return _csv(ATTEMPTS, (_attempt(data["job"], row) for row in data["attempts"]))


def _attempt(job: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    fault, trial = row["fault"] or {}, row["trial"]
    return {
        **row,
        "job": job["id"],
        "name": job["name"],
        "attempt": row["number"],
        "gpus": [gpu["name"] for gpu in row["gpus"]],
        "trial": trial["candidates"][trial["index"]]["label"] if trial else None,
        "fault": fault.get("kind"),
        "fault_step": fault.get("step"),
        "evidence": fault.get("evidence"),
        **{f"asked_{name}": row["asked"][name] for name in KNOB_NAMES},
    }


def _settings(settings: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[name]) for name in columns] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Return a value as a cell: empty for none, words for true and false, and no text that is a formula."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, (int, float)):
        return value
    text = clean(", ".join(value) if isinstance(value, list) else str(value))
    return f"'{text}" if text.lstrip().startswith(FORMULA) and text not in NOT_FINITE else text
