"""Runs slow work in threads: a few tasks at once per host, one at a time per key.

The loop submits a task, is woken when it is done, and takes its result then. A task must not touch the store.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rung.jobs.model.errors import EngineError, HostError


class Lane(Enum):
    """Which tasks of a host wait for each other, and how many of them run at once."""

    # A question, which is answered in a moment.
    QUICK = 4
    # What a job waits for, and what may take minutes: pulling, shipping, verifying.
    SLOW = 3
    # What nobody waits for, such as copies of checkpoints. It must never delay a relaunch.
    SPARE = 1


# What to do with the result, and with an error.
Callbacks = tuple[Callable[..., None], Callable[..., None]]


def _ignore(*_: Any) -> None:
    """Do nothing: the caller takes the result from the task."""


@dataclass(frozen=True)
class Task:
    """Work that runs or is done, and its callbacks."""

    future: Future[Any]
    on_result: Callable[..., None]
    on_error: Callable[..., None]

    @property
    def error(self) -> EngineError | HostError | None:
        """Return the error of Rung that the work raised, if any; any other error is a bug and is raised here."""
        error = self.future.exception()
        if error is None or isinstance(error, (EngineError, HostError)):
            return error
        raise error


class TaskPool:
    def __init__(self, wake: Callable[[str], None] = _ignore) -> None:
        """`wake` is called in the thread of a task that is done, with the key that its result is for."""
        self._wake = wake
        self._pools: dict[tuple[str, Lane], ThreadPoolExecutor] = {}
        self._tasks: dict[str, Task] = {}

    def submit(
        self,
        key: str,
        host: str,
        work: Callable[[], Any],
        callbacks: Callbacks = (_ignore, _ignore),
        *,
        lane: Lane = Lane.QUICK,
        wakes: str | None = None,
    ) -> None:
        """Run the work in a thread; `wakes`: whose turn takes the result, if that is not the key itself."""
        assert key not in self._tasks, f"{key} has a task already"
        pool = self._pools.get((host, lane))
        if pool is None:
            name = f"{host} {lane.name.lower()}"
            pool = self._pools[host, lane] = ThreadPoolExecutor(lane.value, thread_name_prefix=name)
        future = pool.submit(work)
        self._tasks[key] = Task(future, *callbacks)
        future.add_done_callback(lambda _: self._wake(wakes or key))

    def busy(self, key: str) -> bool:
        """Tell whether a task runs, or its result was not taken yet."""
        return key in self._tasks

    def take(self, key: str) -> Task | None:
        """Return the task if it is done, and forget it."""
        return self._tasks.pop(key) if key in self._tasks and self._tasks[key].future.done() else None

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
