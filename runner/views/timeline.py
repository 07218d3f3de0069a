"""Draws the history of a job as a timeline for a terminal: one line per attempt, with its loss as a small curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from rung.jobs.model.terminal_text import clean
from rung.runner.plots.axis import Axis, value_axis
from rung.runner.views.tables import end_text
from rung.runner.views.times import NO_CALENDAR, duration_text

BLOCKS = "▁▂▃▄▅▆▇█"
# The marks of a resume, of a fault or a loss that is not finite, and of a good end.
RESUMED, BAD, GOOD = "↻", "✗", "✓"
CURVE = 14
HEADERS = ("#", "BEGAN", "TOOK", "STEPS", "LOSS", "WHAT")
Row = Mapping[str, Any]


def timeline(data: Mapping[str, Any], summary: str, width: int) -> str:
    """Return the timeline of a history with its series; `summary` is the line above it."""
    curves = draw_curves([losses(row) for row in data["attempts"]], CURVE)
    rows = [_cells(row, curve) for row, curve in zip(data["attempts"], curves, strict=True)]
    sizes = [max(len(row[index]) for row in [HEADERS, *rows]) for index in range(len(HEADERS) - 1)]
    room = max(12, width - sum(sizes) - 2 * len(sizes))
    if len(click.unstyle(summary)) > width:
        # The id and the state, and what it cost below.
        job, state, *cost = summary.split("  ", 2)
        summary = "\n".join([f"{job}  {state}", *(_cut(f"  {text}", width) for text in cost)])
    lines = [summary, _cut(clean(data["job"]["reason"]), width)]
    if not rows:
        return "\n".join([*lines, "no attempt yet"])
    lines += ["", click.style(_line(HEADERS, sizes, room), bold=True)]
    for row, attempt in zip(rows, data["attempts"], strict=True):
        lines.append(click.style(_line(row, sizes, room), fg=_colour(attempt)))
    hint = f"`rung history {data['job']['id']} --full` has the reasons, the knobs and the costs"
    return "\n".join([*lines, "", click.style(_cut(hint, width), dim=True)])


def losses(attempt: Row) -> list[float]:
    """Return the losses of an attempt, in the order of their steps."""
    return [float(point["loss"]) for point in attempt["series"] if point["loss"] is not None]


def draw_curves(series: Sequence[Sequence[float]], width: int) -> list[str]:
    """Return a line of blocks for each series, all on one scale, so that they can be compared."""
    shrunk = [_shrink(values, width) for values in series]
    # As in a plot: logarithmic where the values are far apart, so that one spike does not flatten all the rest.
    axis = value_axis([value for values in shrunk for value in values], 0.0, float(len(BLOCKS)))
    return ["".join(_block(value, axis) for value in values) for values in shrunk]


def _shrink(values: Sequence[float], width: int) -> list[float]:
    """Return at most `width` values: the mean of each part, or NaN where one of its values is not finite."""
    count = min(width, len(values))
    parts = [values[index * len(values) // count : (index + 1) * len(values) // count] for index in range(count)]
    # A sum of finite numbers can overflow, too.
    return [sum(part) / len(part) if all(map(math.isfinite, part)) else math.nan for part in parts]


def _block(value: float, axis: Axis | None) -> str:
    if axis is None or not math.isfinite(value):
        return BAD
    return BLOCKS[min(len(BLOCKS) - 1, int(axis.place(value)))]


def _cells(row: Row, curve: str) -> tuple[str, ...]:
    began = _short_time(row["started_at"])
    took = duration_text(row["seconds"]) if row["seconds"] is not None else "-"
    return str(row["number"]), began, took, _steps(row), curve or "-", clean(_what(row))


def _short_time(at: float | None) -> str:
    try:
        return f"{datetime.fromtimestamp(at):%m-%d %H:%M}" if at is not None else "-"
    except NO_CALENDAR:
        return "-"


def _steps(row: Row) -> str:
    """Return from where to where an attempt got, with the mark of a resume."""
    if row["furthest_step"] is None:
        return "-"
    resumed = row["resumed_step"] if row["resumed_step"] is not None else row["planned_step"]
    begin = f"{RESUMED}{resumed}" if row["resumed_from"] and resumed else str(row["first_step"] or 0)
    return f"{begin}-{row['furthest_step']}"


def _what(row: Row) -> str:
    """Return the rung of an attempt and how it ended."""
    trial = row["trial"]
    if trial:
        begin = f"trial {trial['candidates'][trial['index']]['label']}"
    elif row["by_person"]:
        begin = ""
    elif row["goes_on"]:
        begin = "goes on"
    else:
        begin = row["rung"] or ("step back" if row["stepped_back"] else "same knobs")
    return " ".join(filter(None, [begin, _end(row)]))


def _end(row: Row) -> str:
    fault = row["fault"]
    if fault:
        return f"{BAD} {fault['kind']}" + (f" at {fault['step']}" if fault["step"] is not None else "")
    if row["trial"]:
        return f"{GOOD} won" if row["trial"]["won"] else str(row["trial"]["verdict"])
    if row["outcome"] == "succeeded":
        return f"{GOOD} {row['verdict'] or 'succeeded'}"
    words = "" if row["outcome"] == "pending" else end_text(row).replace("_", " ")
    return " ".join(filter(None, [words, row["verdict"]])) or "running"


def _colour(row: Row) -> str | None:
    if row["fault"]:
        return "red"
    return "green" if row["outcome"] == "succeeded" else None


def _line(cells: Sequence[str], sizes: Sequence[int], room: int) -> str:
    padded = [cell.ljust(size) for cell, size in zip(cells[:-1], sizes, strict=True)]
    return "  ".join([*padded, _cut(cells[-1], room)]).rstrip()


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"
