"""Finds and makes the folder where Rung keeps its data: RUNG_HOME, or the XDG state folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rung.jobs.model.errors import StoreError
from rung.jobs.model.paths import HomePaths


def find_home(environ: Mapping[str, str]) -> HomePaths:
    """Return the home from the environment; nothing is created yet."""
    named = environ.get("RUNG_HOME")
    if named:
        return HomePaths(Path(named).expanduser().absolute())
    state = environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return HomePaths(Path(state) / "rung")


def make_home(paths: HomePaths) -> None:
    """Create the home, readable only by its owner."""
    try:
        paths.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{paths.home}: cannot be created: {error.strerror}; set RUNG_HOME to a writable folder"
        ) from None
