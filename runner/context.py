"""Holds what every part of the controller needs: the store, the engines, the clock, the task pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError, HostError, RungError
from rung.jobs.model.paths import HomePaths
from rung.runner.engine_pool import Engines
from rung.runner.launch.request import build_request
from rung.runner.seams.engine import Request
from rung.runner.state.store import Store
from rung.runner.task_pool import TaskPool

OnResult = Callable[[Job, Any], None]
OnError = Callable[[Job, RungError], None]


@dataclass
class Context:
    """What every part of the loop works with. The clock and the sleep are passed in."""

    store: Store
    engines: Engines
    paths: HomePaths
    environ: Mapping[str, str]
    now: Callable[[], float]
    sleep: Callable[[float], None]
    tasks: TaskPool = field(default_factory=TaskPool)
    # How far the task of a job is; shown as the job's reason on the next turn.
    progress: dict[str, str] = field(default_factory=dict)
    # Until when a job is left alone, after a problem that takes time to go away.
    _back_off_until: dict[str, float] = field(default_factory=dict)

    def request(self, job: Job, attempt: Attempt) -> Request:
        return build_request(job, attempt, self.paths, self.store.origin(job.id), self.environ)

    def set_reason(self, job: Job, reason: str) -> None:
        if reason != job.reason:
            with self.store.transaction():
                self.store.set_reason(job.id, reason)

    def back_off(self, key: str, seconds: float) -> None:
        self._back_off_until[key] = self.now() + seconds

    def is_backing_off(self, key: str) -> bool:
        return self.now() < self._back_off_until.get(key, 0.0)

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
