"""Holds what every part of the controller needs: the store, the engines, the clocks, the task pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rung.jobs.job import Attempt, Job
from rung.jobs.model.engine import PlacedBy
from rung.jobs.model.errors import RungError
from rung.jobs.model.event import EventKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import HomePaths
from rung.recovery.nodes.avoid import nodes_to_exclude
from rung.runner.agenda import Agenda
from rung.runner.engine_pool import Engines
from rung.runner.launch.request import build_request
from rung.runner.launch.shell_python import with_python
from rung.runner.seams.engine import Request
from rung.runner.state.store import Store
from rung.runner.task_pool import TaskPool

# How often the loop looks at what cannot wake it: logs that grow, and what other processes write to the store. Short
# enough for a person who follows a job; a fault is seen at most this much later.
TURN_SECONDS = 0.2

OnResult = Callable[[Job, Any], None]
OnError = Callable[[Job, RungError], None]


@dataclass(frozen=True)
class Clock:
    """Two clocks. `wall` is for people: somebody may set it at any moment. `steady` never jumps: every wait uses it."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Lasting(NamedTuple):
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
    # How far the task of a job is; shown as the job's reason on its next turn.
    progress: dict[str, str] = field(default_factory=dict)
    # Until when a job is left alone, after a problem that takes time to go away.
    _back_off_until: dict[str, float] = field(default_factory=dict)
    # When this controller first saw something that lasts, by both clocks.
    _first_seen: dict[Hashable, tuple[float, float]] = field(default_factory=dict)

    _gpu_here: list[Gpu | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.agenda = Agenda(self.clock.steady)
        self.tasks = TaskPool(self.agenda.wake)

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
        now, seen = self.steady(), self._first_seen.get(key)
        if seen is None:
            seen = self._first_seen[key] = (now, self.now())
        return Lasting(now - seen[0], seen[1])

    def lasted(self, key: Hashable) -> Lasting | None:
        """Return how long something lasts; None if it does not."""
        return self.lasting(key) if key in self._first_seen else None

    def over(self, key: Hashable) -> None:
        """Forget that something lasted."""
        self._first_seen.pop(key, None)

    def job_ended(self, job_id: str) -> None:
        """Drop what is kept about a job that has ended, and what need not be left alone any longer."""
        self.engines.job_ended(job_id)
        self.progress.pop(job_id, None)
        kept = {key: at for key, at in self._first_seen.items() if not (isinstance(key, tuple) and job_id in key)}
        self._first_seen, now = kept, self.steady()
        self._back_off_until = {key: until for key, until in self._back_off_until.items() if until > now}

    def count_anew(self) -> None:
        """Count everything that lasts from now on: nobody looked for a while, and it may have been over meanwhile."""
        self._first_seen.clear()

    def request(self, job: Job, attempt: Attempt) -> Request:
        environ = self.environ if attempt.is_remote else with_python(self.environ, self.store.python(job.id))
        return build_request(job, attempt, self.paths, self.store.origin(job.id), environ)

    def how_started(self, attempt: Attempt, request: Request) -> dict[str, Any]:
        """Return the command of an attempt, and at a site the way in which it starts jobs now."""
        at_site = attempt.engine.placed_by is PlacedBy.SITE
        hosts = (host for host in self.engines.hosts if host.name == attempt.host) if at_site else ()
        site = next((host.site for host in hosts), None)
        return {"argv": list(request.argv), **({"start": site.start.value} if site else {})}

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

    def tell_progress(self, job_id: str, text: str) -> None:
        """Tell how far the task of a job is; from any thread."""
        self.progress[job_id] = text
        self.agenda.wake(job_id)

    def wake_in(self, job_id: str, seconds: float) -> None:
        """Give a job its next turn after so many seconds at the latest."""
        self.agenda.wake_by(job_id, self.steady() + seconds)

    def back_off(self, key: str, seconds: float, *, wakes: str | None = None) -> None:
        """Leave something alone for a while; `wakes`: whose turn it is after that, if not of the key itself."""
        self._back_off_until[key] = self.steady() + seconds
        self.wake_in(wakes or key, seconds)

    def is_backing_off(self, key: str) -> bool:
        return self.back_off_left(key) > 0

    def back_off_left(self, key: str) -> float:
        """Return for how many seconds something is still left alone."""
        until = self._back_off_until.get(key)
        return max(0.0, until - self.steady()) if until is not None else 0.0

    def gpu_here(self) -> Gpu | None:
        """Return the first GPU of this machine; it is asked for once."""
        if not self._gpu_here:
            self._gpu_here.append(self.engines.local.gpu())
        return self._gpu_here[0]

    def call_engine(
        self, job: Job, attempt: Attempt, work: Callable[[], Any], on_result: OnResult, on_error: OnError
    ) -> None:
        """Call an attempt's engine in the task pool; the loop never waits for an answer."""
        self.tasks.submit(job.id, attempt.host, work, (on_result, on_error))
