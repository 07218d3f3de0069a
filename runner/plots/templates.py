"""Makes the template environment of Rung: everything from outside is cleaned and escaped, whatever a template does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from rung.jobs.model.terminal_text import clean

if TYPE_CHECKING:
    from jinja2 import Environment


def cleaned(value: Any) -> Any:
    """Return a value without control codes and direction marks; text that a template has made stays as it is."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def environment(folder: Path, show: Callable[[Any], Any] = cleaned) -> Environment:
    """Return the environment for the templates of a folder. A name that a template misspells is an error.

    `show`: what is written for a value; it cleans at least.
    """
    # Commands that draw nothing do not wait for it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=show,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
