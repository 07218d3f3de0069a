"""Tests attempts on two hosts: every start is made once, a failed one leaves nothing, and all parts end together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import EngineError, HostUnreachable, PartNotStarted
from rung.jobs.model.paths import AttemptPaths, HomePaths
from rung.runner.engines.group.engine import GRACE_SECONDS, GroupEngine
from rung.runner.engines.group.parts import Part
from rung.runner.engines.on_host.done_record import write_done
from rung.runner.seams.engine import Container, Observation, Presence, Request


class Killed(BaseException):
    """The controller is killed at this moment."""


class Machine:
    """One host with what runs there, which outlives every controller; `fails` raises before an action takes place."""

    def __init__(self, name: str) -> None:
        self.host, self.state, self.starts = name, Presence.ABSENT, 0
        self.created = False
        self.end: Observation | None = None
        self.fails: dict[str, BaseException] = {}
        self.done: list[str] = []

    def _do(self, action: str) -> None:
        if error := self.fails.pop(action, None):
            raise error
        self.done.append(action)

    def create(self, request: Request) -> None:
        self._do("create")
        self.created = True

    def start(self, request: Request, secrets: Mapping[str, str]) -> None:
        self._do("start")
        if self.state is Presence.ABSENT and not request.paths.stop.exists():
            assert self.created, "a part is created before any is started"
            self.state, self.starts = Presence.RUNNING, self.starts + 1
            request.paths.log.write_text(f"[rank{request.paths.node}]: step=1\n")

    def discard(self, paths: AttemptPaths) -> None:
        self._do("discard")
        self.created = False
        self.state = Presence.LOST if self.starts else Presence.ABSENT

    def observe(self, paths: AttemptPaths) -> Observation:
        self._do("observe")
        if self.end is not None:
            write_done(paths, self.end)
            return self.end
        return Observation(self.state, started_at=1.0)

    def stop(self, paths: AttemptPaths, *, force: bool) -> None:
        self._do("kill" if force else "term")
        paths.stop.touch()
        if self.state is Presence.RUNNING and force:
            self.end = Observation(Presence.ENDED, exit_code=137, signal=9, ended_at=20.0)

    def ask_for_stacks(self, paths: AttemptPaths) -> None:
        self._do("stacks")


class World:
    """Two hosts, and a controller that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.machines = (Machine("a"), Machine("b"))
        self.paths = HomePaths(folder).attempt("job-1", 1)
        self.now = 0.0
        self.restart()

    def restart(self) -> None:
        parts: Any = [Part(each.host, each, ()) for each in self.machines]  # type: ignore[arg-type]
        self.engine = GroupEngine(parts, "10.0.0.1", "store", lambda: self.now)

    def start(self) -> None:
        container = Container("train", gpus=())
        paths, folder = self.paths, Path("/rung/job")
        self.engine.start(Request("job-1", 1, ("python",), folder, {}, paths, folder, container=container), {})

    def observe(self) -> Observation:
        return self.engine.observe(self.paths)

    @property
    def starts(self) -> list[int]:
        return [each.starts for each in self.machines]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_all_parts_are_created_before_the_first_is_started(world: World) -> None:
    assert world.observe().presence is Presence.ABSENT
    world.start()
    assert world.observe().presence is Presence.RUNNING and world.starts == [1, 1]
    world.now = 1.0
    world.observe()
    assert sorted(world.paths.log.read_text().splitlines()) == ["[rank0]: step=1", "[rank1]: step=1"]


@pytest.mark.parametrize("action", ["create", "start"])
@pytest.mark.parametrize("machine", [0, 1])
def test_a_controller_that_is_killed_during_the_start_doubles_nothing(world: World, machine: int, action: str) -> None:
    world.machines[machine].fails[action] = Killed()
    with pytest.raises(Killed):
        world.start()
    world.restart()
    # What every controller does: it asks, and starts what is not there.
    assert world.observe().presence is Presence.ABSENT
    world.start()
    assert world.observe().presence is Presence.RUNNING and world.starts == [1, 1]


def test_a_part_that_cannot_be_created_leaves_nothing_and_may_be_tried_again(world: World) -> None:
    world.machines[1].fails["create"] = EngineError("b: no such image")
    with pytest.raises(EngineError, match="no such image"):
        world.start()
    assert [each.created for each in world.machines] == [False, False]
    world.start()
    assert world.starts == [1, 1]


def test_a_part_that_cannot_be_started_takes_the_others_with_it_and_is_not_tried_again(world: World) -> None:
    world.machines[1].fails["start"] = EngineError("b: no such device")
    with pytest.raises(PartNotStarted, match=r"^b: no such device$"):
        world.start()
    assert [each.state for each in world.machines] == [Presence.LOST, Presence.ABSENT]
    assert not issubclass(PartNotStarted, EngineError), "a start is retried after an EngineError"


def test_a_host_that_goes_away_during_the_start_is_waited_for(world: World) -> None:
    world.machines[1].fails["start"] = HostUnreachable("b: no answer")
    with pytest.raises(HostUnreachable):
        world.start()
    assert world.starts == [1, 0] and world.observe().presence is Presence.ABSENT
    world.start()
    assert world.starts == [1, 1]


def test_a_part_that_fails_ends_the_others_first_politely(world: World) -> None:
    world.start()
    first, second = world.machines
    second.end = Observation(Presence.ENDED, exit_code=1, ended_at=10.0)
    assert world.observe().presence is Presence.RUNNING and "term" in first.done and "kill" not in first.done
    world.now = GRACE_SECONDS
    world.observe()
    assert first.done.count("term") == 1 and "kill" in first.done
    end = world.observe()
    assert (end.presence, end.exit_code, end.signal, end.ended_at) == (Presence.ENDED, 1, None, 20.0)
    # It is written: the hosts are not asked again, whoever asks.
    world.restart()
    asked = len(first.done)
    assert world.observe() == end and len(first.done) == asked


def test_a_part_that_is_gone_ends_the_others(world: World) -> None:
    world.start()
    world.machines[1].state = Presence.ABSENT
    world.observe()
    world.now = GRACE_SECONDS
    world.observe()
    assert world.observe().presence is Presence.LOST and world.starts == [1, 1]


def test_a_host_that_is_away_stops_nothing(world: World) -> None:
    world.start()
    world.machines[1].state = Presence.UNREACHABLE
    assert world.observe().presence is Presence.UNREACHABLE
    assert world.machines[0].state is Presence.RUNNING and "term" not in world.machines[0].done


def test_a_stop_reaches_the_others_although_one_host_is_away(world: World) -> None:
    world.start()
    world.machines[0].fails["kill"] = HostUnreachable("a: no answer")
    with pytest.raises(HostUnreachable):
        world.engine.stop(world.paths, force=True)
    assert world.machines[1].end is not None
    world.engine.stop(world.paths, force=True)
    assert world.observe().exit_code == 137


def test_nothing_is_started_after_a_stop(world: World) -> None:
    world.engine.stop(world.paths, force=False)
    world.start()
    assert [each.done for each in world.machines] == [["term"], ["term"]]
    assert world.observe().presence is Presence.ABSENT


def test_all_ranks_are_asked_for_their_stacks(world: World) -> None:
    world.start()
    world.engine.ask_for_stacks(world.paths)
    assert all("stacks" in each.done for each in world.machines)
