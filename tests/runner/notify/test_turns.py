"""Tests that a service that hangs costs a recovery no turn of the controller, and that no turn waits for it.

Turns and events are counted, with and without the service, by clocks that only a turn moves. One request begins before
the first fault and is not answered before the last relaunch. A turn that sleeps or waits for another thread fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.runner import task_pool
from rung.runner.notify.post import Answer, post
from rung.runner.notify.settings import Target
from rung.runner.session import pause
from rung.runner.session.pause import PatientController
from rung.runner.state.store import Event
from tests import pace
from tests.runner.notify.test_notifier import running
from tests.support.message_server import MessageServer, write_settings
from tests.support.pretend import World, worlds

RUNGS = ["raise_clip", "lower_lr"]
JOB = {"run": "x {lr} {clip}", "knobs": {"lr": 1e-3, "clip": 5.0}, "recovery": {"ladder": RUNGS, "trials": "off"}}
# Nobody gives up before the test does.
NO_LIMIT = "?rto=3600&cto=3600"
NOBODY_WAITS = 3600.0


class Hanging:
    """A service that accepts connections and answers none, until it is let go."""

    def __init__(self, server: MessageServer) -> None:
        self.server, self.let_go = server, threading.Event()
        self.server.behave = lambda: 200 if self.let_go.wait() else 0
        # The requests that have begun, by the thread that waits for them, and those that have ended.
        self.begun: list[str] = []
        self.ended: list[Answer] = []

    def post(self, target: Target, text: str, closing: threading.Event) -> Answer:
        self.begun.append(threading.current_thread().name)
        self.ended.append(post(target, text, closing, limit=NOBODY_WAITS))
        return self.ended[-1]


class BetweenTurns(Executor):
    """Does the work for hosts after the turn that asks for it, never beside it: so each run takes the same turns."""

    waiting: ClassVar[list[tuple[Future[Any], Callable[[], Any]]]] = []

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, partial(fn, *args, **kwargs)))
        return future

    @classmethod
    def work(cls) -> None:
        while cls.waiting:
            future, work = cls.waiting.pop(0)
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)


def without_waiting(turn: Callable[[], int]) -> int:
    """Take a turn; it fails if this thread sleeps, or waits for another one."""
    here = threading.current_thread()
    with pytest.MonkeyPatch.context() as patched:
        for owner, name in ((time, "sleep"), (threading.Event, "wait"), (threading.Thread, "join")):
            wait = getattr(owner, name)

            def watched(*given: Any, wait: Callable[..., Any] = wait, **options: Any) -> Any:
                assert threading.current_thread() is not here, f"a turn waits: {wait}"
                return wait(*given, **options)

            patched.setattr(owner, name, watched)
        return turn()


@contextmanager
def world_of(folder: Path, hanging: Hanging | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Give a controller with a fake host, as a session puts it together; people are told if there is a service."""
    folder.mkdir(mode=0o700)
    if hanging is not None:
        write_settings(folder, {"lab": hanging.server.url + NO_LIMIT})
    monkeypatch.setattr(pause, "_tell", lambda paths, text, owner: pytest.fail(f"it waits for the store: {text}"))
    monkeypatch.setattr(task_pool, "ThreadPoolExecutor", BetweenTurns)
    with worlds(folder, ampere=["A100"]) as build:
        world, options = build(), {"post": hanging.post} if hanging is not None else {}
        with running(HomePaths(folder), **options) as notifier:
            patient = PatientController(world.controller, HomePaths(folder), notifier)
            world.take_turn = lambda: (without_waiting(patient.turn), BetweenTurns.work())
            try:
                yield world
            finally:
                if hanging is not None:
                    hanging.let_go.set()


def fail_one(world: World) -> None:
    """Let a job fail, which people are told about at once."""
    job = world.submit("broken", "A100")
    with world.store.transaction():
        world.store.move(job, JobState.FAILED, reason="no GPU", at=world.now)


def recover_twice(world: World) -> tuple[list[int], list[Event]]:
    """Return the turns from each of two faults to the relaunch after it, and the events of the job."""
    job, engine = world.submit("a", "A100", **JOB), world.engine("ampere")
    world.until(lambda: world.is_running(job))
    turns = []
    for number in (1, 2):
        engine.append_log(f"{job}/{number}", b"step 50 loss 1.0\nstep 51 loss nan\n")
        engine.end(f"{job}/{number}", code=1)
        turns.append(count_turns(world, f"{job}/{number + 1}"))
        world.until(lambda: world.is_running(job))
    assert [each.rung for each in world.store.attempts(job)] == [None, *RUNGS]
    return turns, world.store.events(job)


def count_turns(world: World, name: str) -> int:
    """Return how many turns it takes until an attempt runs."""
    count = 0
    while name not in world.engine("ampere").running():
        world.turn()
        count += 1
        assert count < 100, [(job.state, job.reason) for job in world.store.jobs()]
    return count


def comparable(events: list[Event]) -> list[tuple[Any, ...]]:
    return [(event.at, event.kind, event.attempt, event.data.get("because")) for event in events]


def test_a_recovery_takes_the_same_turns_and_events_while_one_request_hangs_all_along(
    tmp_path: Path, service: MessageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world_of(tmp_path / "alone", None, monkeypatch) as world:
        fail_one(world)
        turns, events = recover_twice(world)
    hanging = Hanging(service)
    with world_of(tmp_path / "told", hanging, monkeypatch) as world:
        fail_one(world)
        pace.until(lambda: service.titles, 60)
        told_turns, told_events = recover_twice(world)
        assert (told_turns, comparable(told_events)) == (turns, comparable(events))
        # All of that was between the beginning and the end of one request.
        assert service.titles == ["broken needs you: no GPU"]
        assert hanging.begun == ["notify lab"] and hanging.ended == []
