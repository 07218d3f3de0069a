"""Keeps commands that remove files of jobs apart from those that begin to use them: `retry` and `launch --from`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from rung.jobs.model.errors import UsageError
from rung.jobs.model.paths import HomePaths


@contextmanager
def removing(paths: HomePaths) -> Iterator[None]:
    """Hold the lock for the removal of files; the system releases it when this process ends, however it ends."""
    others = "another `rung rm`, `rung prune`, `rung retry` or `rung launch --from` is at work"
    with _locked(paths, fcntl.LOCK_EX, others):
        yield


@contextmanager
def using(paths: HomePaths) -> Iterator[None]:
    """Hold off the removal of files while a command begins to use some; many may do so at the same time."""
    with _locked(paths, fcntl.LOCK_SH, "`rung rm` or `rung prune` removes files now"):
        yield


@contextmanager
def _locked(paths: HomePaths, kind: int, refusal: str) -> Iterator[None]:
    lock = os.open(paths.removal_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{paths.home}: {refusal}; try again when it has ended") from None
        yield
    finally:
        os.close(lock)
