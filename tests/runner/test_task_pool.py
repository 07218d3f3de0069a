"""Tests which tasks of a host wait for each other. The tasks end when a test lets them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from types import SimpleNamespace

import pytest

from rung.jobs.model.errors import EngineError
from rung.runner import task_pool
from rung.runner.task_pool import Lane, TaskPool

# No task takes this long; a wait this long means that it never begins.
PATIENCE = 120
Submit = Callable[[str, str, Lane], threading.Event]


@pytest.fixture
def gate() -> threading.Event:
    """What every task waits for, once it has begun."""
    return threading.Event()


@pytest.fixture
def pool(gate: threading.Event) -> Iterator[TaskPool]:
    pool = TaskPool()
    yield pool
    gate.set()
    pool.close()


@pytest.fixture
def submit(pool: TaskPool, gate: threading.Event) -> Submit:
    def submit(key: str, host: str, lane: Lane) -> threading.Event:
        begun = threading.Event()

        def work() -> None:
            begun.set()
            gate.wait(PATIENCE)

        pool.submit(key, host, work, lane=lane)
        return begun

    return submit


@pytest.mark.parametrize("lane", list(Lane))
def test_a_full_lane_delays_no_other_lane_and_no_other_host(lane: Lane, submit: Submit, gate: threading.Event) -> None:
    fills = [submit(f"fill {number}", "titan", lane) for number in range(lane.value)]
    waiting = submit("one more", "titan", lane)
    others = [submit(f"titan {each}", "titan", each) for each in Lane if each is not lane]
    others.append(submit("other host", "atlas", lane))
    assert all(begun.wait(PATIENCE) for begun in fills + others)
    # All its threads are taken by tasks that have begun, so it cannot have begun too.
    assert not waiting.is_set()
    gate.set()
    assert waiting.wait(PATIENCE)


def test_an_error_of_rung_is_a_result_and_a_bug_is_raised() -> None:
    ended = threading.Semaphore(0)
    pool = TaskPool(lambda key: ended.release())

    def fail(error: Exception) -> None:
        raise error

    pool.submit("rung", "titan", lambda: fail(EngineError("no")))
    pool.submit("bug", "titan", lambda: fail(ValueError("oops")))
    assert all(ended.acquire(timeout=PATIENCE) for _ in range(2))
    refused, bug = pool.take("rung"), pool.take("bug")
    assert refused is not None and str(refused.error) == "no"
    assert bug is not None
    with pytest.raises(ValueError, match="oops"):
        _ = bug.error
    assert not pool.busy("rung") and pool.take("rung") is None
    pool.close()


class Steps:
    """A clock that a test moves, and the rests that were asked for."""

    def __init__(self, pool: TaskPool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.rests = 100.0, list[float]()
        monkeypatch.setattr(task_pool, "time", SimpleNamespace(monotonic=lambda: self.at))
        monkeypatch.setattr(pool._closed, "wait", self._rest)

    def _rest(self, seconds: float) -> bool:
        self.rests.append(seconds)
        self.at += max(seconds, 0.0)
        return False

    def take(self, seconds: float) -> None:
        self.at += seconds


def test_a_host_rests_after_what_nobody_waits_for_and_no_other_host_does(
    pool: TaskPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(pool, monkeypatch)
    for number, (host, lane, seconds) in enumerate(
        [
            ("titan", Lane.SPARE, 0.5),
            ("titan", Lane.SPARE, 60.0),
            ("titan", Lane.SPARE, 0.5),
            ("atlas", Lane.SPARE, 0.5),
            ("titan", Lane.SLOW, 0.5),
        ]
    ):
        pool.submit(f"task {number}", host, partial(steps.take, seconds), lane=lane)
        pool._tasks[f"task {number}"].future.result(timeout=PATIENCE)
    assert [round(max(rest, 0.0), 3) for rest in steps.rests] == [0.0, 2.0, 5.0, 0.0]


def test_a_pool_that_is_closed_waits_for_no_rest(pool: TaskPool) -> None:
    pool._rests_until["titan"] = time.monotonic() + 1e6
    pool.submit("spare", "titan", lambda: None, lane=Lane.SPARE)
    pool.close()
    with pytest.raises(CancelledError):
        pool._tasks["spare"].future.result(timeout=PATIENCE)
