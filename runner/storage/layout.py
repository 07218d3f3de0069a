"""Knows what lies where in the folder of a job, on this machine and on a host. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from rung.jobs.job import Attempt, Job
from rung.jobs.model.paths import IN_JOB, STAYS
from rung.runner.checkpoints.set_aside import FOLDER as SET_ASIDE

MIRROR = "mirror"
ATTEMPTS = "attempts"
# Rung's own folders in the folder of a job on this machine; whatever else is there, the job wrote.
RESERVED = (ATTEMPTS, MIRROR, STAYS, SET_ASIDE)


def residence_folder(attempt: Attempt) -> str:
    """Return the folder that the job keeps from attempt to attempt."""
    if attempt.is_remote or attempt.residence > 1:
        return f"{STAYS}/{attempt.residence}"
    return "."


def checkpoint_folder(job: Job, attempt: Attempt) -> str | None:
    """Return the folder of its checkpoints, in the folder of the job; None: it is the user's own, such as a volume."""
    folder = PurePosixPath(job.spec.checkpoint.dir)
    if attempt.is_remote and folder.is_absolute() and folder.is_relative_to(IN_JOB):
        folder = folder.relative_to(IN_JOB)
    if folder.is_absolute() or ".." in folder.parts:
        return None
    return str(PurePosixPath(residence_folder(attempt)) / folder)


def work_copy(attempt: Attempt) -> str:
    return f"{ATTEMPTS}/{attempt.number}/work"


def work_copies(attempts: Sequence[Attempt]) -> list[str]:
    """Return the copies of the workdir that these attempts have, also one that was never completed."""
    return [f"{work_copy(attempt)}{part}" for attempt in attempts for part in ("", ".part")]


def set_aside_folders(attempts: Sequence[Attempt]) -> list[str]:
    """Return where checkpoints of these attempts were set aside in one place, also by 0.1.0 on a host."""
    if not any(attempt.is_remote for attempt in attempts):
        return [SET_ASIDE]
    return ["set-aside", *sorted({f"{residence_folder(attempt)}/{SET_ASIDE}" for attempt in attempts})]


def leftovers(attempts: Sequence[Attempt]) -> list[str]:
    """Return the folders on a host that only a transfer fills."""
    return ["incoming", "outgoing"] if any(attempt.is_remote for attempt in attempts) else []
