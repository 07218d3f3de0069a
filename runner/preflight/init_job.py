"""Reads a training script for `rung init`, and writes a job file beside it. The script is never run or imported."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rung.jobs.config_files.edit import KINDS, MAX_CHARS, find
from rung.jobs.model.errors import ConfigFileError, RungError, SpecError, UsageError
from rung.jobs.model.terminal_text import SHAPELESS, clean
from rung.jobs.spec.load import parse_spec
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.analysis.source import MAX_BYTES, Unreadable
from rung.recovery.doctor.job_draft.asked import Asked, Draft
from rung.recovery.doctor.job_draft.draft import draft_job
from rung.recovery.doctor.job_draft.job_text import job_text
from rung.recovery.doctor.job_draft.settings import settings_of

FILE = "job.yaml"


@dataclass(frozen=True)
class NewJob:
    """A job file that is not written yet, and what was found for it."""

    path: Path
    text: str
    draft: Draft


def new_job(script: Path, arguments: Sequence[str], output: Path | None) -> NewJob:
    """Return the job file for a script and its arguments; raise a RungError where the script cannot be read."""
    read = read_script(script)
    path = output if output is not None else script.parent / FILE
    draft = draft_job(read, _asked(script, read, tuple(arguments), path))
    shown = clean(str(script))
    opening = (
        f"Written by `rung init {shown}`, which reads it and does not run it. docs/job-file.md lists all fields.",
        f"Next: rung check {clean(str(path))}",
    )
    text = job_text(draft, opening)
    try:
        parse_spec(text.encode())
    except SpecError as error:
        problem = error.problems[0].partition(": ")[2]
        raise UsageError(
            f"{shown}: no job file can be written for it: {problem}; change that name or argument"
        ) from None
    return NewJob(path, text, draft)


def read_script(path: Path) -> Script:
    """Return a parsed script; each reason why it cannot be read is one line."""
    try:
        return Script(_read(path))
    except Unreadable as problem:
        raise UsageError(f"{path}:{'' if problem.line else ' '}{problem}") from None


def _read(path: Path) -> bytes:
    """Return the bytes of a script; do not open a pipe, a device or a huge file."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{path}: is a folder; name the script that trains: rung init {path}/train.py")
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path}: is not a file; name the Python script that trains")
        if path.suffix != ".py":
            raise UsageError(f"{path}: is not a Python script (.py); name the one that your command runs")
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path}: cannot be read: {why}; name the Python script that trains") from None


def _asked(script: Path, read: Script, arguments: tuple[str, ...], output: Path) -> Asked:
    """Return the command: as typed in the folder where `rung init` runs, if the script is below it, else in its own."""
    here, target = Path.cwd(), script.absolute()
    folder = here if target.is_relative_to(here) else target.parent
    name = SHAPELESS.sub("", clean(script.stem)).strip()[:100] or "job"
    return Asked(
        name=name,
        script=str(target.relative_to(folder)),
        arguments=arguments,
        launcher=("python" if sys.prefix != sys.base_prefix or shutil.which("python") else "python3",),
        folder=str(folder),
        workdir=os.path.relpath(folder, output.absolute().parent),
        find_key=partial(_find_key, folder, _config_names(read, arguments)),
    )


def _config_names(script: Script, arguments: Sequence[str]) -> list[str]:
    """Return the config files that the command names, or that are the default of an option."""
    named = [word.rpartition("=")[2] for word in arguments]
    named += [each.default for each in settings_of(script).values() if isinstance(each.default, str)]
    return [name for name in dict.fromkeys(named) if Path(name).suffix in KINDS]


def _find_key(folder: Path, names: Sequence[str], key: str) -> tuple[str, object] | None:
    """Return the first config file that has a key, and its value there; None: no file has it."""
    for name in names:
        with suppress(OSError, UnicodeDecodeError, ConfigFileError):
            path = (folder / name).resolve()
            if path.is_relative_to(folder.resolve()) and path.is_file() and path.stat().st_size <= MAX_CHARS:
                return name, find(path.read_text(encoding="utf-8"), name, key).value
    return None


def write_job(job: NewJob, *, force: bool) -> None:
    """Write the job file; what is there already is replaced only if that was asked for."""
    try:
        if force:
            job.path.unlink(missing_ok=True)
        with job.path.open("x", encoding="utf-8") as stream:
            stream.write(job.text)
    except FileExistsError:
        raise UsageError(f"{job.path}: exists already; --force replaces it, --output FILE writes another") from None
    except OSError as error:
        raise RungError(f"{job.path}: cannot be written: {error.strerror}; --output FILE writes elsewhere") from None
