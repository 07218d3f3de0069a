"""Decides which columns of the jobs fit the terminal, and how wide each is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from rung.runner.top.job_line import JobLine
from rung.runner.top.loss_curves import WIDTH
from rung.runner.views.tables import STATE_COLOURS

FIELDS = {
    **{"JOB": "id", "STATE": "state", "STEP": "step", "LOSS": "loss", "CURVE": "curve", "RUNG": "rung"},
    **{"LEFT": "left", "REASON": "reason"},
}
# How wide each may be where 80 columns are all there is, and how wide at most.
NARROW = {"JOB": 16, "STATE": 10, "STEP": 11, "LOSS": 7, "CURVE": WIDTH, "RUNG": 12, "LEFT": 7}
WIDE = {"RUNG": 28, "JOB": 40, "STEP": 20, "LOSS": 10, "LEFT": 9}
# Which are left out first on a terminal that is narrower still.
LEFT_OUT = ("CURVE", "LEFT", "RUNG", "LOSS", "STEP", "STATE")
LEAST_REASON = 14
RIGHT = ("STEP", "LOSS", "LEFT")
SCROLLBAR = 1


def columns(jobs: Sequence[JobLine], width: int) -> dict[str, int]:
    """Return the columns that fit, from the left, each with its width; a space comes between two."""
    longest = {name: max(len(name), *(len(getattr(job, FIELDS[name])) for job in jobs), 0) for name in FIELDS}
    # The curve grows while one looks; the columns beside it stay where they are.
    longest["CURVE"] = WIDTH
    sizes = {name: min(most, longest[name]) for name, most in NARROW.items()}
    for name in LEFT_OUT:
        if _room(sizes, width) < 0:
            del sizes[name]
    for name, most in WIDE.items():
        if name in sizes:
            sizes[name] += max(0, min(_room(sizes, width), min(most, longest[name]) - sizes[name]))
    reason = min(_room(sizes, width) - 1, longest["REASON"])
    return {**sizes, "REASON": reason} if reason >= LEAST_REASON else sizes


def _room(sizes: dict[str, int], width: int) -> int:
    return width - SCROLLBAR - sum(sizes.values()) - len(sizes) + 1


def cells(job: JobLine, sizes: dict[str, int]) -> list[Text]:
    """Return the cells of a job, as text that nothing interprets."""
    return [_cell(name, getattr(job, FIELDS[name]), size) for name, size in sizes.items()]


def header(name: str, size: int) -> Text:
    return _cell(name, name, size)


def _cell(name: str, value: str, size: int) -> Text:
    style = STATE_COLOURS.get(value, "") if name == "STATE" else ""
    text = Text(value, style=style, no_wrap=True)
    text.truncate(size, overflow="ellipsis")
    text.align("right" if name in RIGHT else "left", size)
    return text
