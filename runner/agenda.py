"""Holds what is due in the controller's loop, and lets the loop sleep until something is.

A key is the id of a job, or any other word for work beside the jobs. Other threads wake keys; only the loop takes them.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable


class Agenda:
    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._condition = threading.Condition()
        self._due: set[str] = set()
        # When each key is due at the latest. The heap may hold older times of a key, which then mean nothing.
        self._times: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def wake(self, key: str) -> None:
        """Make a key due now; from any thread."""
        with self._condition:
            self._due.add(key)
            self._condition.notify()

    def wake_by(self, key: str, at: float) -> None:
        """Make a key due at a time of the steady clock, unless it is due before that."""
        with self._condition:
            if at < self._times.get(key, float("inf")):
                self._times[key] = at
                heapq.heappush(self._heap, (at, key))

    def take(self) -> set[str]:
        """Return what is due now, and forget it."""
        with self._condition:
            self._collect()
            due, self._due = self._due, set()
            for key in due:
                self._times.pop(key, None)
            return due

    def wait(self, most: float) -> None:
        """Sleep until something is due, but at most so many seconds."""
        with self._condition:
            self._collect()
            if not self._due:
                first = self._heap[0][0] - self._steady() if self._heap else most
                self._condition.wait(max(0.0, min(first, most)))

    def _collect(self) -> None:
        now = self._steady()
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._times.get(key) == at:
                del self._times[key]
                self._due.add(key)
