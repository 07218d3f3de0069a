"""Tests the log follower with a scripted engine, for answers that a real one cannot be made to give."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import EngineError, HostUnreachable
from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.container_state import Record, outcome
from rung.runner.engines.docker.log_follower import LogFollower
from rung.runner.engines.on_host.done_record import write_done
from rung.runner.seams.engine import Presence

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
NAME = "rung-s-a-1-1"


def line(number: int, kind: int = 1) -> bytes:
    text = f"2026-11-15T10:00:{number:02d}.000000000Z line {number}\n".encode()
    framed = bytes([kind, 0, 0, 0]) + len(text).to_bytes(4, "big") + text
    return b"%x\r\n%s\r\n" % (len(framed), framed)


class Stream:
    """A connection on which the engine has sent some bytes."""

    def __init__(self, data: bytes) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._theirs.sendall(data)

    def recv(self, size: int) -> bytes:
        try:
            return self._ours.recv(size)
        except BlockingIOError:
            raise TimeoutError from None

    def settimeout(self, seconds: float | None) -> None:
        self._ours.settimeout(seconds)

    def fileno(self) -> int:
        return self._ours.fileno()

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


class Scripted:
    """An engine and a Completion in one, with the answers that a test sets."""

    host, store_id = "turing", "s"

    def __init__(self) -> None:
        self.state: Any = {"Status": "running", "StartedAt": "2026-11-15T10:00:00Z"}
        self.logs: list[bytes] = []
        self.opened: list[tuple[str | None, bool]] = []
        self.left = Record(began=True)
        self.api = self

    def negotiate_version(self) -> None: ...

    def inspect(self, name: str) -> Any:
        if isinstance(self.state, Exception):
            raise self.state
        return {"State": self.state}

    def containers(self, labels: dict[str, str]) -> list[dict[str, Any]]:
        return [{"Names": [f"/{NAME}"], "State": self.state["Status"]}]

    def open_log(self, name: str, since: str | None, *, follow: bool) -> Stream:
        self.opened.append((since, follow))
        return Stream(self.logs.pop(0) if self.logs else HEAD)

    def read_record(self, paths: AttemptPaths) -> Record:
        return self.left

    def remove_network(self, name: str) -> None: ...

    def finalize(self, name: str, paths: AttemptPaths, state: Any) -> Any:
        end = outcome(state, self.left)
        write_done(paths, end)
        return end


@pytest.fixture
def engine() -> Scripted:
    return Scripted()


@pytest.fixture
def follower(engine: Scripted) -> Iterator[LogFollower]:
    made = LogFollower(engine)  # type: ignore[arg-type]
    yield made
    made.close()


@pytest.fixture
def paths(tmp_path: Path) -> AttemptPaths:
    return AttemptPaths(tmp_path / "jobs" / "a-1" / "attempts" / "1")


Wait = Callable[..., Any]


def text(paths: AttemptPaths) -> str:
    return paths.log.read_text() if paths.log.is_file() else ""


def test_the_end_of_a_stream_is_not_the_end_of_the_job(
    engine: Scripted, follower: LogFollower, paths: AttemptPaths, wait_until: Wait
) -> None:
    engine.logs = [HEAD + line(1) + LAST, HEAD + line(1) + line(2) + LAST, HEAD + line(1) + line(2) + line(3)]
    assert follower.observation(NAME, paths).presence is Presence.RUNNING
    wait_until(lambda: "line 3" in text(paths))
    assert follower.observation(NAME, paths).presence is Presence.RUNNING
    assert text(paths) == "line 1\nline 2\nline 3\n"
    assert not paths.done.exists()


def test_an_ended_container_counts_as_running_until_its_log_is_copied(
    engine: Scripted, follower: LogFollower, paths: AttemptPaths, wait_until: Wait
) -> None:
    engine.state = {"Status": "exited", "ExitCode": 0}
    engine.left = Record(True, 0, 1.0)
    engine.logs = [HEAD + line(1)]
    assert follower.observation(NAME, paths).presence is Presence.RUNNING
    wait_until(lambda: "line 1" in text(paths))
    assert follower.observation(NAME, paths).presence is Presence.RUNNING
    assert engine.opened == [(None, False)]


def test_a_job_ends_also_when_the_engine_cannot_read_its_whole_log(
    engine: Scripted, follower: LogFollower, paths: AttemptPaths, wait_until: Wait
) -> None:
    engine.state = {"Status": "exited", "ExitCode": 1}
    engine.left = Record(True, 1, 1.0)
    engine.logs = [HEAD + line(1) + line(2, kind=3)]
    wait_until(lambda: follower.observation(NAME, paths).presence is Presence.ENDED)
    assert follower.observation(NAME, paths).exit_code == 1
    assert text(paths).startswith("line 1\nrung: the host cannot read the rest of this log: ")


def test_a_host_that_does_not_answer_is_unreachable_until_it_does(
    engine: Scripted, follower: LogFollower, paths: AttemptPaths, wait_until: Wait
) -> None:
    engine.state = HostUnreachable("turing: gone")
    away = follower.observation(NAME, paths)
    assert away.presence is Presence.UNREACHABLE
    assert away.detail.startswith("turing has not answered for 0 s: ")
    engine.state = {"Status": "running"}
    wait_until(lambda: follower.observation(NAME, paths).presence is Presence.RUNNING)


@pytest.mark.parametrize("error", [EngineError("turing: too long"), KeyError("State"), RecursionError("deep")])
def test_an_answer_about_one_attempt_that_is_not_understood_is_the_trouble_of_that_attempt(
    engine: Scripted, follower: LogFollower, paths: AttemptPaths, wait_until: Wait, error: Exception
) -> None:
    engine.state = error
    waiting = follower.observation(NAME, paths)
    assert waiting.presence is Presence.WAITING
    assert str(error) in waiting.detail
    engine.state = {"Status": "running"}
    wait_until(lambda: follower.observation(NAME, paths).presence is Presence.RUNNING)


def test_a_log_that_cannot_be_written_is_reported_and_no_line_is_lost(
    engine: Scripted, follower: LogFollower, paths: AttemptPaths, wait_until: Wait
) -> None:
    paths.log.mkdir(parents=True)
    engine.logs = [HEAD + line(1)]
    wait_until(lambda: follower.observation(NAME, paths).presence is Presence.WAITING)
    assert "cannot be written here" in follower.observation(NAME, paths).detail
    paths.log.rmdir()
    wait_until(lambda: text(paths) == "line 1\n")
    wait_until(lambda: follower.observation(NAME, paths).presence is Presence.RUNNING)


def test_an_invalidated_observation_is_not_returned_again(
    engine: Scripted, follower: LogFollower, paths: AttemptPaths, wait_until: Wait
) -> None:
    engine.state = {"Status": "created"}
    assert follower.observation(NAME, paths).presence is Presence.ABSENT
    engine.state = {"Status": "running"}
    follower.invalidate(NAME, paths)
    assert follower.observation(NAME, paths).presence is Presence.RUNNING


def test_the_network_is_removed_when_the_end_is_known_already(
    engine: Scripted, follower: LogFollower, paths: AttemptPaths, wait_until: Wait
) -> None:
    engine.state, engine.left = {"Status": "exited", "ExitCode": 0}, Record(True, 0, 1.0)
    engine.logs = [HEAD + line(1) + LAST]
    let_go, removed = threading.Event(), list[tuple[str, bool]]()
    engine.remove_network = lambda name: removed.append((name, let_go.wait(10)))  # type: ignore[method-assign]
    wait_until(lambda: follower.observation(NAME, paths).presence is Presence.ENDED)
    let_go.set()
    wait_until(lambda: removed == [(NAME, True)])
