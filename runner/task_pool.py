"""Runs slow work in threads: a few tasks at once per host, one at a time per key.

The loop submits a task, is woken when it is done, and takes its result then. A task must not touch the store.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rung.jobs.model.errors import EngineError, HostError

# A quick task is a question; a slow one (pulling, shipping, verifying, copying) may take minutes, and must not block
# the questions about other jobs of the host.
QUICK_AT_ONCE = 4
SLOW_AT_ONCE = 3

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
        self._pools: dict[tuple[str, bool], ThreadPoolExecutor] = {}
        self._tasks: dict[str, Task] = {}

    def submit(
        self,
        key: str,
        host: str,
        work: Callable[[], Any],
        callbacks: Callbacks = (_ignore, _ignore),
        *,
        slow: bool = False,
        wakes: str | None = None,
    ) -> None:
        """Run the work in a thread; `wakes`: whose turn takes the result, if that is not the key itself."""
        assert key not in self._tasks, f"{key} has a task already"
        pool = self._pools.get((host, slow))
        if pool is None:
            name = f"{host}{' slow' if slow else ''}"
            most = SLOW_AT_ONCE if slow else QUICK_AT_ONCE
            pool = self._pools[host, slow] = ThreadPoolExecutor(most, thread_name_prefix=name)
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
