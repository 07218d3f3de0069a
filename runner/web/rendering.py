"""Fills the templates. Every text is made safe to show, whatever it holds: no markup, no control codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rung.jobs.model.terminal_text import clean
from rung.runner.views.story import duration
from rung.runner.views.times import age_text, duration_text, iso_utc, local_time

NOTHING = "–"  # noqa: RUF001  (a dash, as in tables)


def shown(value: Any) -> Any:
    """Return what a page shows of a value; jinja2 escapes it afterwards."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return f"{value:.4g}"
    return clean(value) if isinstance(value, str) else value


def make_templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("rung.runner.web"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "age": age_text,
        "since_start": duration,
        "duration": duration_text,
        "clock": local_time,
        "iso": iso_utc,
        "gibibytes": _gibibytes,
        "joined": _joined,
    }
    return templates


def _gibibytes(size: int) -> str:
    return f"{size / (1 << 30):.0f} GiB"


def _joined(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
