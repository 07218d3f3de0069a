"""Tests when a run on a host is looked at for a checkpoint to copy, by a clock that the tests move."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.checkpoints import mirror
from rung.runner.checkpoints.mirror import Copied, Mirror
from rung.runner.context import Clock, Context
from rung.runner.seams.engine import FileEntry
from rung.runner.state.store import Store
from rung.runner.task_pool import Lane

EVERY = 1000.0
SPEC = {
    "name": "a",
    "image": "cuda@sha256:" + "0" * 64,
    "run": "python train.py",
    "checkpoint": {"dir": "ckpt", "pattern": "*.pt", "mirror_every": EVERY},
}


class Hours:
    """A run that is supervised once a second, hour after hour, and when it was looked at."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # The first turn is at second 0.
        self.at, self.looks, self.lanes = -1.0, list[float](), set[Lane]()
        self.found: Callable[[], Copied] = lambda: Copied(None, {})
        store = Store(folder / "rung.db")
        engines: Any = SimpleNamespace(on=lambda host: None)
        self.context = Context(store, engines, HomePaths(folder), {}, Clock(lambda: 5.0, lambda: self.at))
        with store.transaction():
            job = store.add_job(JobSpec.model_validate(SPEC), Path("/"), at=1.0)
            store.put_attempt(Attempt(job.id, 1, "titan", Knobs(), None, ""))
        self.job: Job = replace(job, state=JobState.RUNNING)
        self.mirror = Mirror(self.context)
        monkeypatch.setattr(self.context, "request", lambda *_: None)
        monkeypatch.setattr(mirror, "copy_newest", lambda *_: self._look())
        self._submit = self.context.tasks.submit
        monkeypatch.setattr(self.context.tasks, "submit", self._note_lane)

    def _note_lane(self, *task: Any, lane: Lane, **more: Any) -> None:
        self.lanes.add(lane)
        self._submit(*task, lane=lane, **more)

    def _look(self) -> Copied:
        self.looks.append(self.at)
        return self.found()

    def pass_by(self, seconds: int) -> list[float]:
        """Let the time pass; return when the run was looked at in it."""
        self.looks.clear()
        for _ in range(seconds):
            self.at += 1.0
            self.mirror.turn(self.job)
            self._finish()
        return list(self.looks)

    def _finish(self) -> None:
        """Wait until no look is under way, so that each belongs to the second in which it was asked for."""
        key = f"mirror {self.job.id}"
        if self.context.tasks.busy(key):
            self.context.tasks._tasks[key].future.exception(timeout=120)


@pytest.fixture
def hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hours:
    return Hours(tmp_path, monkeypatch)


def a_copy() -> Copied:
    return Copied(FileEntry("step_5.pt", 9, 1e9), {})


def reasons(hours: Hours) -> list[str]:
    return [event.data["because"] for event in hours.context.store.events() if "cop" in event.data.get("because", "")]


def test_a_run_that_saves_nothing_is_looked_at_less_and_less_often(hours: Hours) -> None:
    assert hours.pass_by(5000) == [100, 300, 700, 1500, 2500, 3500, 4500]
    assert hours.lanes == {Lane.SPARE}


def test_after_a_copy_the_usual_time_passes_and_then_a_run_is_looked_at_soon_again(hours: Hours) -> None:
    hours.pass_by(750)
    hours.found = a_copy
    # The result is taken one second after the look.
    assert hours.pass_by(1500) == [1500]
    hours.found = lambda: Copied(None, {})
    assert hours.pass_by(1500) == [2501, 2701, 3101]
    assert reasons(hours) == ["step_5.pt is healthy and was copied here"]


def test_a_look_that_fails_is_not_tried_again_at_once_and_is_told_once(hours: Hours) -> None:
    def fails() -> Copied:
        raise EngineError("tar: no space left")

    hours.found = fails
    assert hours.pass_by(1600) == [100, 300, 700, 1500]
    assert reasons(hours) == ["no copy of a checkpoint could be made: tar: no space left"]


def test_a_look_that_cannot_even_begin_waits_as_well(hours: Hours, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        hours.looks.append(hours.at)
        raise EngineError("no such secret")

    monkeypatch.setattr(hours.context, "request", refused)
    tried = []
    for _ in range(400):
        hours.at += 1.0
        try:
            hours.mirror.turn(hours.job)
        except EngineError:
            tried.append(hours.at)
    assert tried == [100, 300]


def test_a_run_is_not_looked_at_while_a_look_is_under_way(hours: Hours, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def held() -> Copied:
        gate.wait(120)
        return Copied(None, {})

    hours.found = held
    monkeypatch.setattr(hours, "_finish", lambda: None)
    hours.pass_by(900)
    task = hours.context.tasks._tasks[f"mirror {hours.job.id}"]
    gate.set()
    task.future.result(timeout=120)
    # Two more would have been due.
    assert len(hours.looks) == 1
