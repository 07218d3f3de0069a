"""Tests that a log says what it lacks.

In 0.1.0 a log ended early without a word when the engine or the container was removed before the log was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Job
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.controller.log_watch import LogWatch, fault_at_end
from rung.runner.engines.docker.container_state import Record
from rung.runner.engines.docker.followed_attempt import ENDS_EARLY
from rung.runner.engines.docker.log_follower import LogFollower
from rung.runner.seams.engine import Presence
from tests.support.scripted_engine import HEAD, LAST, ScriptedEngine, line

NAME = "rung-s-a-1-1"
RUNNING = {"Status": "running", "StartedAt": "2026-11-15T10:00:00Z"}
NOTE = ENDS_EARLY.format(host="turing")
Wait = Callable[..., Any]


@pytest.fixture
def engine() -> ScriptedEngine:
    made = ScriptedEngine()
    made.states, made.logs = {NAME: RUNNING}, {NAME: [HEAD + line(1)]}
    return made


@pytest.fixture
def follow(engine: ScriptedEngine) -> Iterator[Callable[[], LogFollower]]:
    made: list[LogFollower] = []

    def start() -> LogFollower:
        made.append(LogFollower(engine))  # type: ignore[arg-type]
        return made[-1]

    yield start
    for follower in made:
        follower.close()


@pytest.fixture
def paths(tmp_path: Path) -> AttemptPaths:
    return AttemptPaths(tmp_path / "jobs" / "a-1" / "attempts" / "1")


def text(paths: AttemptPaths) -> str:
    return paths.log.read_text() if paths.log.is_file() else ""


@pytest.mark.parametrize("record", [Record(began=True), Record(True, 0, 5.0)])
def test_a_container_that_was_removed_before_its_log_was_read(
    engine: ScriptedEngine, follow: Callable[[], LogFollower], paths: AttemptPaths, wait_until: Wait, record: Record
) -> None:
    follower = follow()
    follower.observation(NAME, paths)
    wait_until(lambda: "line 1" in text(paths))
    engine.records[1] = record
    del engine.states[NAME]
    follower.invalidate(NAME, paths)
    over = Presence.ENDED if record.done else Presence.LOST
    wait_until(lambda: follower.observation(NAME, paths).presence is over)
    assert text(paths) == f"line 1\n{NOTE}\n"


def test_the_line_about_it_is_not_taken_for_the_last_line_of_the_job(
    engine: ScriptedEngine, follow: Callable[[], LogFollower], paths: AttemptPaths, wait_until: Wait
) -> None:
    follower = follow()
    follower.observation(NAME, paths)
    wait_until(lambda: "line 1" in text(paths))
    del engine.states[NAME]
    follower.invalidate(NAME, paths)
    wait_until(lambda: follower.observation(NAME, paths).presence is Presence.LOST)
    job = Job("a-1", JobSpec(name="a", run=("x",)), JobState.RUNNING, "", 0, 0, Knobs())
    watch = LogWatch(paths.log, job)
    watch.read_to_end()
    fault = fault_at_end(follower.observation(NAME, paths), watch)
    assert fault is not None
    assert fault.kind is FaultKind.INFRA_FAULT
    assert fault.evidence.endswith("last line: line 1")


def test_an_engine_that_lost_everything(
    engine: ScriptedEngine, follow: Callable[[], LogFollower], paths: AttemptPaths, wait_until: Wait
) -> None:
    """The host was set up anew: neither the container nor its record is there."""
    follower = follow()
    follower.observation(NAME, paths)
    wait_until(lambda: "line 1" in text(paths))
    engine.records[1] = Record()
    del engine.states[NAME]
    follower.invalidate(NAME, paths)
    wait_until(lambda: follower.observation(NAME, paths).presence is Presence.ABSENT)
    assert text(paths) == f"line 1\n{NOTE}\n"
    # If it comes back after all, the line goes and the log goes on.
    engine.states[NAME], engine.logs[NAME] = RUNNING, [HEAD + line(1) + line(2)]
    follower.invalidate(NAME, paths)
    wait_until(lambda: text(paths) == "line 1\nline 2\n")


def test_a_log_that_was_read_to_its_end_says_nothing(
    engine: ScriptedEngine, follow: Callable[[], LogFollower], paths: AttemptPaths, wait_until: Wait
) -> None:
    """A controller was killed after it had removed the container, and before it wrote the outcome."""
    engine.states = {NAME: {"Status": "exited", "ExitCode": 0}}
    engine.logs, engine.records[1] = {NAME: [HEAD + line(1) + LAST]}, Record(True, 0, 5.0)
    follower = follow()
    wait_until(lambda: follower.observation(NAME, paths).presence is Presence.ENDED)
    follower.close()
    paths.done.unlink()
    engine.states = {}
    later = follow()
    wait_until(lambda: later.observation(NAME, paths).presence is Presence.ENDED)
    assert text(paths) == "line 1\n"


def test_an_attempt_that_never_started_has_no_log(
    engine: ScriptedEngine, follow: Callable[[], LogFollower], paths: AttemptPaths
) -> None:
    engine.states, engine.records[1] = {}, Record()
    assert follow().observation(NAME, paths).presence is Presence.ABSENT
    assert not paths.log.exists()
