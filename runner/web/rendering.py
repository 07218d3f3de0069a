"""Fills the templates. Every text is made safe to show, whatever it holds: no markup, no control codes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment

from rung.runner.plots.templates import cleaned, environment
from rung.runner.views.story import duration
from rung.runner.views.times import age_text, duration_text, iso_utc, local_time, with_since

NOTHING = "–"  # noqa: RUF001  (a dash, as in tables)


def shown(value: Any) -> Any:
    """Return what a page shows of a value; jinja2 escapes it afterwards."""
    if value is None:
        return NOTHING
    return f"{value:.4g}" if isinstance(value, float) else cleaned(value)


def make_templates() -> Environment:
    templates = environment(Path(__file__).parent / "templates", shown)
    templates.filters |= {
        "age": age_text,
        "since_start": duration,
        "duration": duration_text,
        "clock": local_time,
        "iso": iso_utc,
        "with_since": with_since,
        "gibibytes": _gibibytes,
        "joined": _joined,
    }
    return templates


def _gibibytes(size: int) -> str:
    return f"{size / (1 << 30):.0f} GiB"


def _joined(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
