"""Makes the template environment of Rung: everything from outside is cleaned and escaped, whatever a template does."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rung.jobs.model.terminal_text import clean


@cache
def environment(folder: Path) -> Environment:
    """Return the environment for the templates of a folder. A name that a template misspells is an error."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=_cleaned,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _cleaned(value: Any) -> Any:
    """Return a value without control codes and direction marks; text that a template has made stays as it is."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
