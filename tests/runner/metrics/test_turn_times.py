"""Tests the file of the controller's turns: totals that go on, and few writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rung.runner.metrics.turn_times import WRITE_SECONDS, TurnTimes, read_turns
from rung.runner.placement.host_pool import RECENT_SECONDS
from tests.support.pretend import worlds


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def turn(self, times: TurnTimes, seconds: float) -> None:
        def act() -> int:
            self.now += seconds
            return 7

        assert times.turn(act) == 7


def test_the_totals_go_on_with_the_next_controller_and_the_longest_turn_is_its_own(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "controller.json"
    times = TurnTimes(file, dict, clock, clock)
    clock.turn(times, 2.0)
    clock.turn(times, 0.5)
    times.write()
    found = read_turns(file)
    assert found is not None
    assert (found.turns, found.seconds, found.last, found.longest) == (2, 2.5, 0.5, 2.0)
    clock.turn(TurnTimes(file, dict, clock, clock), 0.25)
    found = read_turns(file)
    assert found is not None
    assert (found.turns, found.seconds, found.last, found.longest) == (3, 2.75, 0.25, 0.25)


def test_the_file_is_written_only_now_and_then(tmp_path: Path) -> None:
    clock, file, asked = Clock(), tmp_path / "controller.json", []
    times = TurnTimes(file, lambda: asked.append(1) or {"near": True}, clock, clock)
    for _ in range(101):
        clock.turn(times, WRITE_SECONDS / 10)
    assert len(asked) == 11
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    assert [path.name for path in tmp_path.iterdir()] == ["controller.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"turns": "x"}', '{"turns": 1e999}'])
def test_a_damaged_file_is_begun_anew(tmp_path: Path, text: str) -> None:
    clock, file = Clock(), tmp_path / "controller.json"
    file.write_text(text)
    assert read_turns(file) is None
    clock.turn(TurnTimes(file, dict, clock, clock), 1.0)
    found = read_turns(file)
    assert found is not None and found.turns == 1


def test_a_controller_goes_on_where_the_file_cannot_be_written(tmp_path: Path) -> None:
    clock = Clock()
    clock.turn(TurnTimes(tmp_path / "gone" / "controller.json", dict, clock, clock), 1.0)


def test_a_controller_tells_which_hosts_answered_it_lately(tmp_path: Path) -> None:
    with worlds(tmp_path, near=["P100"], far=["P100"]) as build:
        world = build()
        world.engine("far").away = True
        # No host has such a GPU, so the hosts are asked again and again.
        world.submit("a", "A100:1")
        world.until(lambda: len(world.controller.hosts_answering()) == 2)
        assert world.controller.hosts_answering() == {"near": True, "far": False}
        world.pass_time(RECENT_SECONDS)
        assert world.controller.hosts_answering() == {}
