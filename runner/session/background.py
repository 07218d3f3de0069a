"""Starts a controller in the background for a command that needs one, unless RUNG_CONTROLLER says manual."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rung.jobs.model.errors import ControllerError, UsageError
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.terminal_text import clean
from rung.runner.hosts.this_machine import MAX_PARALLEL
from rung.runner.launch.request import ALLOWED
from rung.runner.state.home import umask_of_jobs
from rung.runner.state.lock import is_owned
from rung.runner.state.owner import find_owner

SETTING = "RUNG_CONTROLLER"
# -P: no module is taken from the folder where it is started.
PROGRAM = ("-P", "-m", "rung.runner.cli.main")
# Long enough for a person who submits one job after the other.
IDLE_SECONDS = 60
# Loading takes about a second; a busy machine may need many times that.
START_SECONDS = 120.0
LOOK_SECONDS = 0.05
# A line for each event: a job writes some ten of them. The log before this one is kept, too.
LOG_BYTES = 8 << 20
# Settings of Rung; every other RUNG_ variable belongs to a job, from which `rung launch` may have been called.
SETTINGS = ("RUNG_HOME", "RUNG_HOSTS", "RUNG_KNOWN_HOSTS", ALLOWED, MAX_PARALLEL, SETTING)
FILES = ("RUNG_HOSTS", "RUNG_KNOWN_HOSTS")
# The folder of the shell, which the controller does not stay in.
FOLDERS = ("PWD", "OLDPWD")
# What decides how a job on this machine runs, of all that it inherits from its controller, and how many run at once.
DECIDING = re.compile(rf"PATH|PYTHONPATH|LD_LIBRARY_PATH|CONDA_PREFIX|CUDA_\w+|HF_HOME|TORCH_HOME|{MAX_PARALLEL}")


def starts_by_itself(environ: Mapping[str, str]) -> bool:
    """Tell whether commands may start a controller in the background."""
    setting = environ.get(SETTING) or "auto"
    if setting not in ("auto", "manual"):
        raise UsageError(
            f"{SETTING}={setting}: write auto, so that commands start a controller that they need, or manual"
        )
    return setting == "auto"


def ensure_controller(paths: HomePaths, environ: Mapping[str, str]) -> bool:
    """Start a controller in the background if none runs and that is allowed; return whether one runs now."""
    if not is_owned(paths) and starts_by_itself(environ):
        start_background(paths, environ)
    return is_owned(paths)


def start_background(paths: HomePaths, environ: Mapping[str, str]) -> None:
    """Start a controller that outlives this process and its terminal; return when it owns the store."""
    command = [sys.executable, *PROGRAM, "controller", "--idle-end", str(IDLE_SECONDS)]
    with _open_log(paths) as log:
        begin = log.tell()
        try:
            process = subprocess.Popen(
                command,
                env=background_environment(environ, paths),
                cwd=paths.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # No Ctrl-C and no hang-up of this terminal reaches it.
                start_new_session=True,
                umask=umask_of_jobs(),
            )
        except OSError as error:
            raise ControllerError(f"a controller could not be started: {sys.executable}: {error.strerror}") from None
    deadline = time.monotonic() + START_SECONDS
    while not is_owned(paths):
        code = process.poll()
        # Asked again: another command's controller may have been first.
        if code is not None and not is_owned(paths):
            raise ControllerError(f"a controller could not be started: {_last_words(paths, begin, code)}")
        if time.monotonic() > deadline:
            raise ControllerError(
                f"controller pid {process.pid}: does not begin; {paths.controller_log} may say why, and "
                "`rung controller` in a terminal shows it"
            )
        time.sleep(LOOK_SECONDS)


def background_environment(environ: Mapping[str, str], paths: HomePaths) -> dict[str, str]:
    """Return the environment of a controller that does not work in this folder and belongs to no job."""
    kept = {
        name: value
        for name, value in environ.items()
        if name not in FOLDERS and (not name.startswith("RUNG_") or name in SETTINGS)
    }
    files = {name: str(Path(kept[name]).expanduser().absolute()) for name in FILES if kept.get(name)}
    return {**kept, **files, "RUNG_HOME": str(paths.home)}


def other_variables(paths: HomePaths, environ: Mapping[str, str], secrets: tuple[str, ...]) -> list[str]:
    """Return the variables that a job on this machine would have from this shell, and gets otherwise: it is started by
    the controller that runs already, in that one's environment.
    """
    owner = find_owner(paths)
    theirs = owner.environ() if owner is not None else {}
    if not theirs:
        return []
    names = {name for name in {**environ, **theirs} if DECIDING.fullmatch(name)} | set(secrets)
    return sorted(name for name in names if environ.get(name) != theirs.get(name))


def _open_log(paths: HomePaths) -> BinaryIO:
    log = paths.controller_log
    try:
        with suppress(FileNotFoundError):
            if log.stat().st_size > LOG_BYTES:
                log.rename(log.with_suffix(".log.1"))
        return open(log, "ab", buffering=0, opener=lambda path, flags: os.open(path, flags, 0o600))
    except OSError as error:
        raise ControllerError(f"{log}: cannot be opened: {error.strerror}; a controller was not started") from None


def _last_words(paths: HomePaths, begin: int, code: int) -> str:
    """Return the last line that an ended controller wrote."""
    with paths.controller_log.open("rb") as log:
        log.seek(begin)
        lines = log.read(1 << 16).decode("utf-8", "replace").strip().splitlines()
    return clean(lines[-1]).removeprefix("rung: ") if lines else f"it ended at once, with exit code {code}"
