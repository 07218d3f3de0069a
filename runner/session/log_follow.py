"""Follows the log of a job, from its last lines on or of one attempt, without the events that `-f` alone shows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import click

from rung.jobs.job import Outcome
from rung.jobs.model.errors import UsageError
from rung.jobs.model.state import JobState
from rung.runner.session.open_home import OpenHome
from rung.runner.views.log_text import NewLines, log_lines, tail_start

# Between two looks at a log that grows.
LOOK_SECONDS = 0.2


class Standing(Enum):
    """Where an attempt stands whose log is shown."""

    RUNS = auto()
    NEXT = auto()  # it has ended, and there is a next one
    GOOD = auto()  # it is the last to be shown, and ended well
    BAD = auto()


@dataclass(frozen=True)
class JobLog:
    """The log of a job, or of one attempt of it."""

    session: OpenHome
    job_id: str
    attempt: int | None
    tail: int | None

    def lines(self) -> Iterator[str]:
        """Yield the log of the attempt, or its last lines."""
        return log_lines(self._path(self._number()), self.tail)

    def follow(self) -> int:
        """Print the log as it grows, until the job or the attempt ends; return the exit code."""
        number = self._number() if self.attempt else max(1, len(self.session.store.attempts(self.job_id)))
        start = tail_start(self._path(number), self.tail) if self.tail else 0
        reader, first = NewLines(self._path(number), start), self.tail
        while True:
            # Asked before the log is read: what an ended attempt wrote is then all there.
            standing = self._standing(number)
            lines = reader.read(time.monotonic(), ended=standing is not Standing.RUNS)
            for line in lines if first is None else deque(lines, maxlen=first):
                click.echo(line)
            first = None
            if standing in (Standing.GOOD, Standing.BAD):
                return 0 if standing is Standing.GOOD else 1
            if standing is Standing.NEXT:
                number += 1
                reader = NewLines(self._path(number))
            else:
                time.sleep(LOOK_SECONDS)

    def _standing(self, number: int) -> Standing:
        job, attempts = self.session.store.job(self.job_id), self.session.store.attempts(self.job_id)
        pending = len(attempts) < number or attempts[number - 1].outcome is Outcome.PENDING
        if self.attempt is not None:
            good, over = attempts[number - 1].outcome is Outcome.SUCCEEDED, job.ended or not pending
        else:
            good, over = job.state is JobState.SUCCEEDED, job.ended and len(attempts) <= number
        if over:
            return Standing.GOOD if good else Standing.BAD
        return Standing.NEXT if len(attempts) > number and (not pending or job.ended) else Standing.RUNS

    def _number(self) -> int:
        attempts = len(self.session.store.attempts(self.job_id))
        wanted = self.attempt or attempts
        if not attempts or wanted > attempts:
            raise UsageError(f"job {self.job_id} has {attempts} attempts; there is no attempt {wanted}")
        return wanted

    def _path(self, number: int) -> Path:
        return self.session.paths.attempt(self.job_id, number).log
