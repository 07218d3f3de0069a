"""Reads what `rung top` shows, each time from one snapshot of the store. Nothing is written."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rung.jobs.job import Attempt
from rung.jobs.model.errors import RungError
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import ENDED, JobState
from rung.jobs.model.terminal_text import clean
from rung.runner.session.watching import unwatched
from rung.runner.top.host_rows import Row, host_rows
from rung.runner.top.job_line import JobLine, job_line
from rung.runner.top.loss_curves import LossCurves
from rung.runner.views.live_line import Pace, describe_now
from rung.runner.views.story import lay_out, whole_story
from rung.runner.web.host_survey import HostSurvey, with_leases
from rung.runner.web.job_view import MOST_STORY
from rung.runner.web.reading import ReadStore, snapshot

ACTIVE = tuple(state.value for state in JobState if state not in ENDED)
OVER = tuple(state.value for state in ENDED)
# The newest of those that are active, and then of the others; `rung queue` lists all.
MOST_JOBS = 200
# Progress that is no event, such as the step, is shown this often.
PROGRESS_SECONDS = 2.0
UNREADABLE = (RungError, OSError, sqlite3.Error)


@dataclass(frozen=True)
class Overview:
    """What is shown of all jobs and hosts at one moment."""

    jobs: tuple[JobLine, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    hosts: tuple[Row, ...] = ()
    # About the hosts: that they are being asked, or why they could not be.
    about_hosts: str = ""
    # What a person should know: that nobody watches, or that the store cannot be read.
    note: str = ""


@dataclass(frozen=True)
class JobStory:
    """What is shown of one job."""

    title: str
    reason: str
    doing: str
    # With the colours of a terminal, and nothing else that controls one.
    lines: tuple[str, ...]


class OverviewReader:
    """Reads the store again and again; keeps the speeds of the jobs and their curves between."""

    def __init__(self, paths: HomePaths, survey: HostSurvey | None = None) -> None:
        self._paths, self._survey = paths, survey or HostSurvey()
        self._curves = LossCurves(paths)
        self._paces: dict[str, Pace] = {}
        self._last = Overview()
        # The connection that sees new events; the last event and the last survey of the hosts; when all was read.
        self._watch: ReadStore | None = None
        self._seen: tuple[int, float | None] = (-1, None)
        self._read_at = -PROGRESS_SECONDS

    def new_overview(self) -> Overview | None:
        """Return what is there if it is due: after an event or an answer of the hosts at once, else now and then."""
        now, seen = time.monotonic(), (self._last_event(), self._survey.look().at)
        if seen == self._seen and now - self._read_at < PROGRESS_SECONDS and not self._curves.behind:
            return None
        self._seen, self._read_at = seen, now
        return self.overview()

    def _last_event(self) -> int:
        try:
            self._watch = self._watch or ReadStore(self._paths.store, any_thread=True)
            return self._watch.last_event()
        except UNREADABLE:
            return self._seen[0]

    def overview(self) -> Overview:
        """Return the jobs and hosts as they are now, or as they were last, with the reason that they cannot be read."""
        try:
            with snapshot(self._paths.store) as store:
                self._last = self._read(store, time.time())
        except UNREADABLE as error:
            return replace(self._last, note=clean(f"not up to date: {error}"))
        return self._last

    def _read(self, store: ReadStore, now: float) -> Overview:
        active = store.job_page(ACTIVE, MOST_JOBS, 0)
        jobs = [*active, *store.job_page(OVER, MOST_JOBS - len(active), 0)]
        attempts = store.attempts_of([job.id for job in jobs])
        self._curves.begin_turn()
        lines = []
        for job in jobs:
            mine = attempts[job.id]
            lines.append(job_line(job, mine, self._curves.draw(mine), self._speed(job.id, mine, now), now))
        self._paces = {job.id: pace for job in active if (pace := self._paces.get(job.id))}
        found = self._survey.look()
        started = [job for job in active if job.state is not JobState.QUEUED and attempts[job.id]]
        users = [(job.id, attempts[job.id][-1].host) for job in started]
        return Overview(
            jobs=tuple(lines),
            counts=store.state_counts(),
            hosts=tuple(host_rows(with_leases(found.hosts, store.leases()), users)),
            about_hosts=found.error or ("asking the hosts …" if found.asking and not found.hosts else ""),
            note=unwatched(self._paths, store) or "",
        )

    def _speed(self, job_id: str, attempts: Sequence[Attempt], now: float) -> float | None:
        if not attempts:
            return None
        pace = self._paces.setdefault(job_id, Pace())
        pace.see(attempts[-1], now)
        return pace.speed

    def story(self, job_id: str, width: int) -> JobStory:
        """Return the story of a job as `rung launch -f` tells it, laid out for this width."""
        now = time.time()
        try:
            with snapshot(self._paths.store) as store:
                job, attempts, events = store.job(job_id), store.attempts(job_id), store.events(job_id)
        except UNREADABLE as error:
            return JobStory(job_id, clean(f"cannot be read: {error}"), "", ())
        lines = [lay_out(line, job.created_at, width) for line in whole_story(events, attempts)]
        left_out = [f"{len(lines) - MOST_STORY} earlier lines: rung history {job_id}"] if lines[MOST_STORY:] else []
        speed = self._paces[job_id].speed if job_id in self._paces else None
        return JobStory(
            title=f"{clean(job.id)}  {job.state}",
            reason=clean(job.reason),
            doing="" if job.ended else describe_now(job, attempts, speed, now),
            lines=(*left_out, *lines[-MOST_STORY:]),
        )
