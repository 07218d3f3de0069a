"""Holds what every part of the controller needs: the store, the engines, the clocks, the task pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.engine import PlacedBy
from rung.jobs.model.errors import EngineError, HostError, RungError
from rung.jobs.model.event import EventKind
from rung.jobs.model.paths import HomePaths
from rung.recovery.nodes.avoid import nodes_to_exclude
from rung.runner.engine_pool import Engines
from rung.runner.launch.request import build_request
from rung.runner.launch.shell_python import with_python
from rung.runner.seams.engine import Request
from rung.runner.state.store import Store
from rung.runner.task_pool import TaskPool

# Seconds between two turns of the controller. Short enough for a person who follows a job; a fault is seen at most this
# much later.
TURN_SECONDS = 0.2

OnResult = Callable[[Job, Any], None]
OnError = Callable[[Job, RungError], None]


@dataclass(frozen=True)
class Clock:
    """Two clocks. `wall` is for people: somebody may set it at any moment. `steady` never jumps: every wait uses it."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Lasting:
    """How long something has lasted by the steady clock, and when that began by the wall clock."""

    seconds: float
    since: float


@dataclass
class Context:
    """What every part of the loop works with."""

    store: Store
    engines: Engines
    paths: HomePaths
    environ: Mapping[str, str]
    clock: Clock = field(default_factory=Clock)
    tasks: TaskPool = field(default_factory=TaskPool)
    # How far the task of a job is; shown as the job's reason on the next turn.
    progress: dict[str, str] = field(default_factory=dict)
    # Until when a job is left alone, after a problem that takes time to go away.
    _back_off_until: dict[str, float] = field(default_factory=dict)
    # When this controller first saw something that lasts, by both clocks.
    _first_seen: dict[Hashable, tuple[float, float]] = field(default_factory=dict)

    def now(self) -> float:
        """Return the time for people: of events, and of what they show. Never wait by it, never subtract it."""
        return self.clock.wall()

    def steady(self) -> float:
        """Return the time for waits and deadlines. It means nothing to another process."""
        return self.clock.steady()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def lasting(self, key: Hashable) -> Lasting:
        """Return how long something lasts, counted from when this controller first asked about it.

        The times in the store are of the wall clock, which may have been set since. So a new controller counts anew.
        """
        began, since = self._first_seen.setdefault(key, (self.steady(), self.now()))
        return Lasting(self.steady() - began, since)

    def lasted(self, key: Hashable) -> Lasting | None:
        """Return how long something lasts; None if it does not."""
        return self.lasting(key) if key in self._first_seen else None

    def over(self, key: Hashable) -> None:
        """Forget that something lasted."""
        self._first_seen.pop(key, None)

    def count_anew(self) -> None:
        """Count everything that lasts from now on: nobody looked for a while, and it may have been over meanwhile."""
        self._first_seen.clear()

    def request(self, job: Job, attempt: Attempt) -> Request:
        environ = self.environ if attempt.is_remote else with_python(self.environ, self.store.python(job.id))
        return build_request(job, attempt, self.paths, self.store.origin(job.id), environ)

    def avoiding_bad_nodes(self, job: Job, attempt: Attempt, request: Request) -> Request:
        """Return a request that names the nodes where its site must not place the attempt now."""
        if attempt.engine.placed_by is PlacedBy.RUNG:
            return request
        ended, cleared = self.store.ended_lately(), self.store.cleared_places()
        return replace(request, avoid=nodes_to_exclude(job, ended, self.now(), site=attempt.host, cleared=cleared))

    def note_trouble(self, attempt: Attempt, because: str) -> None:
        """Record what could not be done beside an attempt, which goes on."""
        with self.store.transaction():
            kind, data = EventKind.UNEXPECTED_ERROR, {"because": because}
            self.store.add_event(attempt.job_id, attempt.number, kind, data, at=self.now())

    def set_reason(self, job: Job, reason: str) -> None:
        if reason != job.reason:
            with self.store.transaction():
                self.store.set_reason(job.id, reason)

    def back_off(self, key: str, seconds: float) -> None:
        self._back_off_until[key] = self.steady() + seconds

    def is_backing_off(self, key: str) -> bool:
        return key in self._back_off_until and self.steady() < self._back_off_until[key]

    def call_engine(
        self, job: Job, attempt: Attempt, work: Callable[[], Any], on_result: OnResult, on_error: OnError
    ) -> None:
        """Call an attempt's engine: at once on this machine, in the task pool for a host."""
        if attempt.is_remote:
            self.tasks.submit(job.id, attempt.host, work, (on_result, on_error))
            return
        try:
            result = work()
        except (EngineError, HostError) as error:
            on_error(job, error)
        else:
            on_result(job, result)
