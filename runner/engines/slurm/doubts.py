"""Keeps an attempt from being submitted again while an earlier sbatch, whose answer was lost, may still be at work.

A connection that breaks does not end the command on the login node: it can submit the job after we have looked for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rung.jobs.model.errors import HostError, HostUnreachable
from rung.runner.engines.slurm.queue import SUBMIT_SECONDS

# The command is over then, and the queue shows what it submitted.
DOUBT_SECONDS = SUBMIT_SECONDS + 10.0


class Doubts:
    """Remembers which submissions to one cluster had no answer. One thread at a time uses it."""

    def __init__(self, host: str, now: Callable[[], float] = time.monotonic) -> None:
        self._host, self._now = host, now
        self._since: dict[str, float] = {}

    @contextmanager
    def about(self, name: str) -> Iterator[None]:
        """Remember a submission whose answer does not come."""
        try:
            yield
        except HostError:
            self._since[name] = self._now()
            raise

    def refuse(self, name: str) -> None:
        """Raise while an earlier submission of the same batch job may still be at work."""
        since = self._since.get(name)
        if since is not None and self._now() - since < DOUBT_SECONDS:
            raise HostUnreachable(
                f"{self._host}: the answer of sbatch was lost; its batch job is looked for before another is submitted"
            )
        self._since.pop(name, None)
