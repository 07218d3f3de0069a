"""Tests `rung logs -f` with `--tail` and `--attempt`: the log goes on from attempt to attempt, until the end."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.runner.state.store import Store
from tests.support.stored_jobs import submitted

Spawn = Callable[..., "subprocess.Popen[bytes]"]
WaitUntil = Callable[..., Any]


class Scene:
    """A job that this test plays the controller of, and a command that shows its log."""

    def __init__(self, home: Path, spawn: Spawn, wait_until: WaitUntil) -> None:
        self.home, self._spawn, self._wait = home, spawn, wait_until
        self.job_id = submitted(home, JobState.LAUNCHING, JobState.RUNNING)
        self.store = Store(home / "rung.db")
        self._output, self._errors = home / "output", home / "errors"

    def attempt(self, number: int, outcome: Outcome = Outcome.PENDING) -> None:
        with self.store.transaction():
            made = Attempt(self.job_id, number, "h", Knobs(), None, "why")
            self.store.put_attempt(replace(made, outcome=outcome))

    def end(self, *states: JobState) -> None:
        with self.store.transaction():
            for state in states:
                self.store.move(self.job_id, state, reason="over", at=3.0)

    def write(self, number: int, text: str) -> None:
        log = HomePaths(self.home).attempt(self.job_id, number).log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            file.write(text)

    def show(self, *words: str) -> subprocess.Popen[bytes]:
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            return self._spawn("logs", self.job_id, "-f", *words, stdout=output, stderr=errors)

    def code_of(self, process: subprocess.Popen[bytes]) -> int:
        """Wait until the command ends; return its exit code."""
        self._wait(lambda: process.poll() is not None)
        return process.wait()

    @property
    def shown(self) -> list[str]:
        return self._output.read_text().splitlines()

    def wait_for(self, *lines: str) -> None:
        self._wait(lambda: self.shown == list(lines))


@pytest.fixture
def scene(home: Path, spawn: Spawn, wait_until: WaitUntil) -> Iterator[Scene]:
    made = Scene(home, spawn, wait_until)
    yield made
    made.store.close()


def test_the_tail_goes_on_with_new_lines_and_the_next_attempt_until_the_job_ends(scene: Scene) -> None:
    scene.attempt(1)
    scene.write(1, "one\ntwo\nthree\n")
    process = scene.show("--tail", "2")
    scene.wait_for("two", "three")
    scene.write(1, "four\n")
    scene.wait_for("two", "three", "four")
    scene.write(1, "the last, without an end")
    scene.attempt(1, Outcome.FAULT)
    scene.attempt(2)
    scene.write(2, "again\n")
    first = ("two", "three", "four", "the last, without an end")
    scene.wait_for(*first, "again")
    scene.write(2, "done\n")
    scene.attempt(2, Outcome.SUCCEEDED)
    scene.end(JobState.SUCCEEDED)
    assert (scene.code_of(process), scene.shown) == (0, [*first, "again", "done"])
    assert (scene.home / "errors").read_text().startswith("no controller is running, so nobody watches")


def test_following_one_attempt_ends_with_it(scene: Scene) -> None:
    scene.attempt(1)
    scene.write(1, "one\n")
    process = scene.show("--attempt", "1")
    scene.wait_for("one")
    scene.attempt(1, Outcome.FAULT)
    scene.attempt(2)
    scene.write(2, "of another attempt\n")
    assert (scene.code_of(process), scene.shown) == (1, ["one"])
    assert not scene.store.job(scene.job_id).ended


def test_a_job_without_an_attempt_is_waited_for(scene: Scene) -> None:
    process = scene.show("--tail", "5")
    scene.write(1, "begun\n")
    scene.wait_for("begun")
    scene.attempt(1, Outcome.FAULT)
    scene.end(JobState.FAILED)
    assert (scene.code_of(process), scene.shown) == (1, ["begun"])


def test_all_attempts_of_a_job_that_has_ended_meanwhile_are_shown(scene: Scene) -> None:
    scene.attempt(1)
    scene.write(1, "one\n")
    process = scene.show("--tail", "5")
    scene.wait_for("one")
    # Two attempts come at once, and the first of them was never told how it ended.
    with scene.store.transaction():
        for number in (2, 3):
            scene.store.put_attempt(Attempt(scene.job_id, number, "h", Knobs(), None, "why"))
            scene.write(number, f"of {number}\n")
        scene.store.move(scene.job_id, JobState.SUCCEEDED, reason="over", at=3.0)
    assert (scene.code_of(process), scene.shown) == (0, ["one", "of 2", "of 3"])
