"""Reads what jobs have measured of themselves, and prints it beside the reference: time of a step and GPU memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.field.rows import Row

RECORD = re.compile(r"^rung\| usage (.*)$", re.MULTILINE)
NUMBER = re.compile(r"\b(updates|seconds_per_step|gpu_bytes)=([\d.e+-]+)")
HEAD = ("job", "rung", "ms a step", "reference", "ratio", "GPU memory, GiB", "reference")


def of_last_attempt(history: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of a step of the job and its peak of GPU memory, in its last attempt; empty if not known."""
    last = history["attempts"][-1]
    log, steps = Path(last.get("log", "")), last.get("steps_made") or 0
    found = RECORD.findall(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else []
    values = {name: float(value) for name, value in NUMBER.findall(found[-1])} if found else {}
    if "seconds_per_step" not in values or not steps:
        return {}
    # A step of a job with several optimizers has several updates.
    seconds = values["seconds_per_step"] * values["updates"] / steps
    return {"seconds": seconds, "gpu_bytes": values.get("gpu_bytes", 0.0)}


def markdown(rows: Iterable[Row]) -> str:
    """Return the table of the rows that were measured."""
    lines = [HEAD, ("---",) * len(HEAD), *(_cells(row) for row in rows if row.usage and row.reference_usage)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    ours, theirs = row.usage, row.reference_usage
    times = [1000 * each["seconds"] for each in (ours, theirs)]
    sizes = [f"{each['gpu_bytes'] / 2**30:.2f}" if each["gpu_bytes"] else "-" for each in (ours, theirs)]
    rungs = ", ".join(row.rungs) or "none"
    return row.job, rungs, f"{times[0]:.1f}", f"{times[1]:.1f}", f"{times[0] / times[1]:.2f}", *sizes
