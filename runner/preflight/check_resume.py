"""Reads the script of a job, to tell for `rung check` whether a relaunch with a checkpoint will resume."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.analysis.source import MAX_BYTES, Unreadable
from rung.recovery.doctor.resume_code import Outlook, outlook, trainer_of


def check_resume(argv: Sequence[str], workdir: Path, mode: str) -> Outlook:
    """Return whether the command of a relaunch makes the script load its checkpoint, and how that is known."""
    names = _scripts(argv)
    if not names:
        return Outlook(None, "the command names no Python script that could be read")
    try:
        script, *configs = (Script(_read(workdir / name)) for name in names)
    except (OSError, Unreadable) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return Outlook(None, f"{names[0]} cannot be read: {why}")
    return outlook(script, argv, mode, configs)


def find_trainer(argv: Sequence[str], workdir: Path) -> str | None:
    """Return the framework whose Trainer drives the script of a command; None: none is seen."""
    for name in _scripts(argv)[:1]:
        with suppress(OSError, Unreadable):
            return trainer_of(Script(_read(workdir / name)))
    return None


def _scripts(argv: Sequence[str]) -> list[str]:
    return [word for word in argv if word.endswith(".py")]


def _read(file: Path) -> bytes:
    """Return the bytes of a script; do not open a pipe, a device or a huge file."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
        raise Unreadable("it is no file of a script's size")
    with file.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)
