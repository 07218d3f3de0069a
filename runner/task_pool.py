"""Runs slow work in threads: a few tasks at once per host, one at a time per key.

The loop submits a task, is woken when it is done, and takes its result then. A task must not touch the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from threading import Event
from typing import Any

from rung.jobs.model.errors import EngineError, HostError


class Lane(Enum):
    """Which tasks of a host wait for each other, and how many of them run at once."""

    # A question, which is answered in a moment.
    QUICK = 4
    # What a job waits for, and what may take minutes: pulling, shipping, verifying.
    SLOW = 3
    # What nobody waits for, such as copies of checkpoints. It must never delay a relaunch, so that it also leaves the
    # host to others most of the time.
    SPARE = 1


# After a spare task a host is left alone so many times as long as the task took, but no longer than this.
RESTS, MOST_REST = 4, 5.0

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
        # When the next spare task of a host may begin; each host has one thread for them.
        self._rests_until: dict[str, float] = {}
        self._closed = Event()

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
        future = pool.submit(partial(self._after_rest, host, work) if lane is Lane.SPARE else work)
        self._tasks[key] = Task(future, *callbacks)
        future.add_done_callback(lambda _: self._wake(wakes or key))

    def _after_rest(self, host: str, work: Callable[[], Any]) -> Any:
        if self._closed.wait(self._rests_until.get(host, 0.0) - time.monotonic()):
            raise CancelledError
        begun = time.monotonic()
        try:
            return work()
        finally:
            ended = time.monotonic()
            self._rests_until[host] = ended + min(RESTS * (ended - begun), MOST_REST)

    def busy(self, key: str) -> bool:
        """Tell whether a task runs, or its result was not taken yet."""
        return key in self._tasks

    def take(self, key: str) -> Task | None:
        """Return the task if it is done, and forget it."""
        return self._tasks.pop(key) if key in self._tasks and self._tasks[key].future.done() else None

    def close(self) -> None:
        self._closed.set()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
