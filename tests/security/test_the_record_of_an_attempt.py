"""Tests that what a job puts in the place of its completion record troubles that job alone.

In 0.1.0 a FIFO there made the read hang for 30 seconds and dropped every stream of the host: sessions piled up, and the
ends of the other jobs stayed unknown for minutes. A link there was followed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.completion import RECORD_SCRIPT
from rung.runner.engines.docker.container_state import ContainerState, Record, Status, outcome, parse_record
from rung.runner.engines.docker.followed_attempt import FollowedAttempt
from rung.runner.engines.docker.log_copy import LogCopy
from rung.runner.engines.docker.log_follower import LogFollower
from rung.runner.seams.engine import Observation, Presence
from tests.support.scripted_engine import HEAD, LAST, ScriptedEngine, line

RUNNING = {"Status": "running", "StartedAt": "2026-11-15T10:00:00Z"}
ENDED = {"Status": "exited", "ExitCode": 0}
Wait = Callable[..., Any]


def read(folder: Path) -> Record:
    """Read a record as it is read on a host; a read that hangs fails the test."""
    ran = subprocess.run(["sh", "-c", RECORD_SCRIPT, "rung", str(folder)], capture_output=True, timeout=20, check=False)
    assert len(ran.stdout) < 5000
    return parse_record(ran.stdout.decode("utf-8", "replace"))


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    secret = path.parent.parent / "secret"
    secret.write_text('{"exit_code": 0, "ended_at": 5}')
    path.symlink_to(secret)


def dangling(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("put", [fifo, link, dangling, device, folder])
def test_what_is_no_plain_file_is_never_opened_and_is_told(tmp_path: Path, put: Callable[[Path], None]) -> None:
    record = tmp_path / "record"
    record.mkdir()
    (record / "began").touch()
    put(record / "done.json")
    found = read(record)
    assert (found.began, found.done) == (True, False)
    end = outcome(ContainerState(Status.ENDED, 0, 1.0, 2.0), found)
    assert end.presence is Presence.LOST
    assert "is no plain file" in end.detail
    assert end.detail.endswith("its exit code is 0")


def test_only_the_beginning_of_a_record_is_read(tmp_path: Path) -> None:
    with (tmp_path / "done.json").open("wb") as file:
        file.truncate(1 << 40)
    assert read(tmp_path) == Record(began=True)
    (tmp_path / "done.json").write_text('{"exit_code": 3, "ended_at": 5}' + " " * 128)
    assert read(tmp_path) == Record(True, 3, 5.0)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 4000,
        '{"exit_code": 1e999, "ended_at": 1}',
        '{"exit_code": true, "ended_at": 1}',
        '{"exit_code": 0, "ended_at": 1e308}',
        '{"exit_code": 0, "ended_at": NaN}',
        '{"exit_code": 0, "ended_at": -5}',
        '{"exit_code": ' + "9" * 3000 + ', "ended_at": 1}',
    ],
)
def test_nonsense_in_a_record_is_no_record(text: str) -> None:
    assert parse_record(f"done\n{text}") == Record(began=True)


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def follower(engine: ScriptedEngine) -> Iterator[LogFollower]:
    made = LogFollower(engine)  # type: ignore[arg-type]
    yield made
    made.close()


@pytest.fixture
def paths(tmp_path: Path) -> Callable[[int], AttemptPaths]:
    return lambda number: AttemptPaths(tmp_path / "jobs" / "a-1" / "attempts" / str(number))


def test_a_record_that_cannot_be_read_drops_no_stream_of_the_others(
    engine: ScriptedEngine, follower: LogFollower, paths: Callable[[int], AttemptPaths], wait_until: Wait
) -> None:
    engine.states = {"good": RUNNING, "bad": RUNNING}
    engine.logs = {"good": [HEAD + line(1)], "bad": [HEAD + line(1), HEAD + line(1) + LAST]}
    for name, number in (("good", 1), ("bad", 2)):
        assert follower.observation(name, paths(number)).presence is Presence.RUNNING
    wait_until(lambda: paths(1).log.is_file() and "line 1" in paths(1).log.read_text())
    engine.records[2] = EngineError("turing: sh: took too long; it may still be running there")
    engine.states["bad"] = ENDED
    follower.invalidate("bad", paths(2))
    wait_until(lambda: follower.observation("bad", paths(2)).presence is Presence.WAITING)
    assert follower.observation("bad", paths(2)).detail == str(engine.records[2])
    # The other one is followed all the time, on the same stream, and its host is never unreachable.
    engine.streams["good"][0].send(line(2))
    wait_until(lambda: "line 2" in paths(1).log.read_text())
    assert follower.observation("good", paths(1)).presence is Presence.RUNNING
    assert len(engine.streams["good"]) == 1
    # It is tried again, but not all the time, and ends as soon as it can be read.
    wait_until(lambda: engine.asked.count(2) >= 2)
    assert engine.asked.count(2) < 6
    engine.records[2] = Record(True, 0, 5.0)
    wait_until(lambda: follower.observation("bad", paths(2)).presence is Presence.ENDED)
    assert paths(2).log.read_text() == "line 1\n"


@pytest.mark.parametrize("error", [EngineError("turing: container bad: the answer is longer than 4194304 bytes")])
def test_an_answer_about_one_container_drops_no_stream_of_the_others(
    engine: ScriptedEngine,
    follower: LogFollower,
    paths: Callable[[int], AttemptPaths],
    wait_until: Wait,
    error: Exception,
) -> None:
    engine.states = {"good": RUNNING, "bad": error}
    engine.logs = {"good": [HEAD + line(1)]}
    assert follower.observation("good", paths(1)).presence is Presence.RUNNING
    assert follower.observation("bad", paths(2)).presence is Presence.WAITING
    wait_until(lambda: "good" in engine.streams)
    engine.streams["good"][0].send(line(2))
    wait_until(lambda: paths(1).log.is_file() and "line 2" in paths(1).log.read_text())
    assert not engine.streams["good"][0].closed
    assert follower.observation("good", paths(1)).presence is Presence.RUNNING


def test_a_log_that_breaks_off_is_opened_again_and_drops_no_stream_of_the_others(
    engine: ScriptedEngine, follower: LogFollower, paths: Callable[[int], AttemptPaths], wait_until: Wait
) -> None:
    engine.states = {"good": RUNNING, "bad": RUNNING}
    engine.logs = {"good": [HEAD + line(1)], "bad": [HEAD + line(1), HEAD + line(1) + line(2)]}
    for name, number in (("good", 1), ("bad", 2)):
        assert follower.observation(name, paths(number)).presence is Presence.RUNNING
    wait_until(lambda: len(engine.streams) == 2)
    engine.streams["bad"][0].break_off()
    wait_until(lambda: "line 2" in paths(2).log.read_text())
    assert paths(2).log.read_text() == "line 1\nline 2\n"
    assert len(engine.streams["good"]) == 1
    assert not engine.streams["good"][0].closed


def test_an_attempt_that_nobody_can_tell_about_counts_as_unreachable_after_a_while(tmp_path: Path) -> None:
    """Otherwise the job would wait for ever on an engine that cannot describe its container."""
    paths = AttemptPaths(tmp_path / "jobs" / "a-1" / "attempts" / "1")
    followed = FollowedAttempt("a", paths, LogCopy(paths))
    times = []
    for now in (100.0, 130.0, 170.0):
        followed.fail(EngineError("turing: container a: no"), now)
        times.append((followed.answer("turing", now).presence, followed.retry_at - now))
    assert times == [(Presence.WAITING, 1.0), (Presence.WAITING, 2.0), (Presence.UNREACHABLE, 4.0)]
    followed.recover()
    followed.observation = Observation(Presence.RUNNING)
    assert followed.answer("turing", 171.0).presence is Presence.RUNNING
    # A full disk here is no reason to leave the host.
    for now in (200.0, 300.0, 400.0):
        followed.fail(OSError(28, "No space left on device"), now)
    assert followed.answer("turing", 400.0).presence is Presence.WAITING
    assert followed.retry_at - 400.0 <= 60.0
