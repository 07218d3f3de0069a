"""Prints the story of a job as it goes on, until it ends, and on a terminal a live line below it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import click

from rung.jobs.job import Attempt, Job
from rung.jobs.model.event import EventKind
from rung.jobs.model.paths import HomePaths
from rung.runner.files.disk_use import disk_use
from rung.runner.files.tree import size_text
from rung.runner.state.store import Event, Store
from rung.runner.views.live_line import LiveLine, Pace, describe_now
from rung.runner.views.story import Told, duration, lay_out, story_width, tell


@dataclass
class StoryPrinter:
    """Prints what the events of one job add to its story; its times count from the first event."""

    live: LiveLine | None = None
    width: Callable[[], int] = story_width
    began: float | None = None
    _told: Told = field(default_factory=Told)

    def show(self, event: Event, attempts: Sequence[Attempt]) -> None:
        self.began = event.at if self.began is None else self.began
        self._told, line = tell(self._told, event, {attempt.number: attempt for attempt in attempts})
        if line is not None:
            self.clear_live()
            click.echo(lay_out(line, self.began, self.width()))

    def show_live(self, text: str, now: float) -> None:
        if self.live is not None and self.began is not None:
            self.live.show(f"{duration(now - self.began):>6}  {text}", self.width())

    def clear_live(self) -> None:
        if self.live is not None:
            self.live.clear()


@dataclass
class StoryFollower:
    """Follows one job; one that a person has tried again begins there."""

    store: Store
    paths: HomePaths
    job_id: str
    now: Callable[[], float]
    printer: StoryPrinter
    _last_event: int = 0
    _pace: Pace = field(default_factory=Pace)

    def show_new(self) -> Job:
        job = self.store.job(self.job_id)
        events = self._new_events()
        attempts = self.store.attempts(self.job_id) if events or self.printer.live is not None else []
        for event in events:
            self._last_event = event.seq
            self.printer.show(event, attempts)
        if self.printer.live is not None and not job.ended:
            self._show_live(job, attempts)
        return job

    def _new_events(self) -> list[Event]:
        events = self.store.events(self.job_id, after=self._last_event)
        if self._last_event:
            return events
        again = [at for at, event in enumerate(events) if event.kind == EventKind.RETRIED]
        return events[again[-1] :] if again else events

    def _show_live(self, job: Job, attempts: Sequence[Attempt]) -> None:
        now = self.now()
        if attempts:
            self._pace.see(attempts[-1], now)
        self.printer.show_live(describe_now(job, attempts, self._pace.speed, now), now)

    def show_end(self, job: Job) -> None:
        """Print what the job took, and where the details are; the story has told how it ended."""
        attempts, size = len(self.store.attempts(job.id)), size_text(disk_use([self.paths.job(job.id)])[0].size)
        took = duration(job.updated_at - (self.printer.began or job.created_at))
        many = f"{attempts} attempt{'s' * (attempts != 1)} in {took}"
        text = f"{many}; its files here take {size}; `rung history {job.id}` shows every detail"
        click.echo(textwrap.fill(text, self.printer.width(), break_on_hyphens=False))

    def close(self) -> None:
        self.printer.clear_live()
