"""Finds, makes and checks the folder where Rung keeps its data: RUNG_HOME, or the XDG state folder."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path

from rung.jobs.model.errors import StoreError
from rung.jobs.model.paths import HomePaths

PRIVATE_UMASK = 0o077
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
OPEN_TO_OTHERS = stat.S_IXGRP | stat.S_IXOTH
# What this process was started with, for the jobs that it starts on this machine; -1: keep the one of this process.
_umask_of_jobs = -1


def find_home(environ: Mapping[str, str]) -> HomePaths:
    """Return the home from the environment; nothing is created yet."""
    named = environ.get("RUNG_HOME")
    if named:
        return HomePaths(Path(named).expanduser().absolute())
    state = environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return HomePaths(Path(state) / "rung")


def make_home(paths: HomePaths) -> None:
    """Create the home, readable only by its owner; refuse one that others could change."""
    try:
        paths.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{paths.home}: cannot be created: {error.strerror}; set RUNG_HOME to a writable folder"
        ) from None
    refuse_shared_home(paths)


def refuse_shared_home(paths: HomePaths) -> None:
    """Refuse a home that somebody else owns or can change: what lies in it decides what is run as us."""
    problem = home_problem(paths)
    if problem:
        raise StoreError(problem)


def home_problem(paths: HomePaths) -> str | None:
    """Return what is wrong with the home or the files in it, and what to do; None if nothing is, or none is there."""
    for path in (paths.home, paths.store, paths.lock, paths.secrets):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{path}: cannot be read: {error.strerror}; set RUNG_HOME to a folder of yours"
        if found.st_uid != os.geteuid():
            return f"{path}: belongs to another user (uid {found.st_uid}); set RUNG_HOME to a folder of yours"
        if found.st_mode & WRITABLE_BY_OTHERS:
            return f"{path}: other users may write to it; forbid that with: chmod go-w {shlex.quote(str(path))}"
        if path == paths.home and not found.st_mode & OPEN_TO_OTHERS:
            return None  # nobody else reaches the files in it, whatever their permissions
    return None


def keep_files_private() -> None:
    """Make every file that this process writes readable only by its owner."""
    global _umask_of_jobs
    before = os.umask(PRIVATE_UMASK)
    _umask_of_jobs = before if _umask_of_jobs == -1 else _umask_of_jobs


def umask_of_jobs() -> int:
    """Return the umask for jobs on this machine: the user's own, since they run as the user."""
    return _umask_of_jobs
