"""Owns work that takes its time: done beside the loop, a few at once per host, one at a time per key.

The loop sends an errand and takes its answer on a later turn. Nothing that runs here may touch the store.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rung.jobs.model.errors import EngineError, HostError

# A quick errand is a question; a slow one (pulling, shipping, verifying, copying) may take minutes, and must not keep
# the questions about other jobs of the host waiting.
QUICK_AT_ONCE = 4
SLOW_AT_ONCE = 3

# What to do with the result, and with an error.
Answer = tuple[Callable[..., None], Callable[..., None]]


def _ignore(*_: Any) -> None:
    """The answer is taken by whoever sent for it."""


@dataclass(frozen=True)
class Task:
    """Work that is under way or done, and what to do with its answer."""

    future: Future[Any]
    then: Callable[..., None]
    failed: Callable[..., None]

    @property
    def error(self) -> EngineError | HostError | None:
        """Return the error of ours that came back; any other one is a bug, and raised here."""
        error = self.future.exception()
        if error is None or isinstance(error, (EngineError, HostError)):
            return error
        raise error


class TaskPool:
    def __init__(self) -> None:
        self._pools: dict[tuple[str, bool], ThreadPoolExecutor] = {}
        self._sent: dict[str, Task] = {}

    def send(
        self,
        key: str,
        host: str,
        work: Callable[[], Any],
        answer: Answer = (_ignore, _ignore),
        *,
        slow: bool = False,
    ) -> None:
        assert key not in self._sent, f"{key} has an errand under way"
        pool = self._pools.get((host, slow))
        if pool is None:
            name = f"{host}{' slow' if slow else ''}"
            most = SLOW_AT_ONCE if slow else QUICK_AT_ONCE
            pool = self._pools[host, slow] = ThreadPoolExecutor(most, thread_name_prefix=name)
        self._sent[key] = Task(pool.submit(work), *answer)

    def busy(self, key: str) -> bool:
        """Tell whether an errand is still under way, or its answer not yet taken."""
        return key in self._sent

    def take(self, key: str) -> Task | None:
        """Return the errand that has come back, once."""
        return self._sent.pop(key) if key in self._sent and self._sent[key].future.done() else None

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
