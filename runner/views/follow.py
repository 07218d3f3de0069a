"""Prints the log of a job with its events between the lines, as they come, until it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import click

from rung.jobs.job import Job
from rung.jobs.model.event import EventKind, find_kind
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.terminal_text import clean
from rung.recovery.logs.lines import LineSplitter
from rung.runner.files.log_file import LogFile
from rung.runner.state.store import Store
from rung.runner.views.tables import event_text, trial_lines

CHUNK = 256 * 1024
# A step record per second is enough for a person; the log file keeps them all.
STEP_SECONDS = 1.0


@dataclass
class LogReader:
    """Reads the log of one attempt line by line, without control codes, in bounded memory."""

    paths: HomePaths
    job_id: str
    attempt: int
    _lines: LineSplitter = field(default_factory=LineSplitter)

    def __post_init__(self) -> None:
        self._log = LogFile(self.paths.attempt(self.job_id, self.attempt).log)

    def new_lines(self, *, ended: bool) -> Iterator[str]:
        while chunk := self._log.read(CHUNK):
            yield from (line.text for line in self._lines.feed(chunk))
        if ended:
            yield from (line.text for line in self._lines.flush())


class Follower(Protocol):
    """Prints what is new about one job."""

    def show_new(self) -> Job:
        """Print what is new; return the job in its current state."""

    def show_end(self, job: Job) -> None:
        """Print how the job ended."""

    def close(self) -> None:
        """Leave the output as a next command needs it."""


@dataclass
class LogFollower:
    """Prints the log of one job, with its events between the lines."""

    store: Store
    paths: HomePaths
    job_id: str
    now: Callable[[], float]
    _last_event: int = 0
    _reader: LogReader | None = None
    _stepped_at: float = 0.0

    def show_new(self) -> Job:
        job = self.store.job(self.job_id)
        for event in self.store.events(self.job_id, after=self._last_event):
            # The last lines of a log come before the event of its end.
            self._show_log(event.attempt, ended=event.kind in (EventKind.ENDED, EventKind.STOPPED))
            self._last_event = event.seq
            kind = find_kind(event.kind)
            if kind is not None and kind.followed:
                click.secho(f"── {kind.replace('_', ' ')}: {event_text(event)}", fg=kind.colour, bold=True)
            if kind is EventKind.TRIALS:
                click.echo("\n".join(trial_lines(event.data)[1:]))
        self._show_log(None, ended=job.ended)
        return job

    def show_end(self, job: Job) -> None:
        click.secho(f"{job.id} {job.state}: {clean(job.reason)}", bold=True)

    def close(self) -> None:
        """There is nothing to clear."""

    def _show_log(self, attempt: int | None, *, ended: bool) -> None:
        if attempt is not None and (self._reader is None or self._reader.attempt != attempt):
            self._reader = LogReader(self.paths, self.job_id, attempt)
        if self._reader is None:
            return
        for line in self._reader.new_lines(ended=ended):
            if self._worth_showing(line):
                click.echo(f"   {line}")

    def _worth_showing(self, line: str) -> bool:
        if "rung| step" not in line:
            return True
        due = self.now() - self._stepped_at >= STEP_SECONDS
        if due:
            self._stepped_at = self.now()
        return due
