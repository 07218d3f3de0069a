"""What every part of the controller is given: the store, the engines, the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError, HostError, RungError
from rung.jobs.model.paths import HomePaths
from rung.runner.engine_pool import Engines
from rung.runner.launch.request import build_request
from rung.runner.seams.engine import Engine, Request
from rung.runner.state.store import Store
from rung.runner.task_pool import TaskPool

Then = Callable[[Job, Any], None]
Failed = Callable[[Job, RungError], None]


@dataclass
class Context:
    """What every member of the loop works with. The clock and the sleep are passed in."""

    store: Store
    engines: Engines
    paths: HomePaths
    environ: Mapping[str, str]
    now: Callable[[], float]
    sleep: Callable[[float], None]
    tasks: TaskPool = field(default_factory=TaskPool)
    # How far an errand is, in its own words; told as the job's reason on the next turn.
    progress: dict[str, str] = field(default_factory=dict)
    # Until when a job is left alone, after something that will not be better at once.
    resting: dict[str, float] = field(default_factory=dict)

    def engine(self, attempt: Attempt) -> Engine:
        return self.engines.here if not attempt.is_remote else self.engines.on(attempt.host)

    def request(self, job: Job, attempt: Attempt) -> Request:
        return build_request(job, attempt, self.paths, self.store.origin(job.id), self.environ)

    def say(self, job: Job, reason: str) -> None:
        if reason != job.reason:
            with self.store.transaction():
                self.store.set_reason(job.id, reason)

    def rest(self, key: str, seconds: float) -> None:
        self.resting[key] = self.now() + seconds

    def rests(self, key: str) -> bool:
        return self.now() < self.resting.get(key, 0.0)

    def ask(self, job: Job, attempt: Attempt, work: Callable[[], Any], then: Then, failed: Failed) -> None:
        """Ask an attempt's engine: at once on this machine, beside the loop on a host."""
        if attempt.is_remote:
            self.tasks.send(job.id, attempt.host, work, (then, failed))
            return
        try:
            answer = work()
        except (EngineError, HostError) as error:
            failed(job, error)
        else:
            then(job, answer)
