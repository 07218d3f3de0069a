"""Tests that no wait, lease or deadline depends on the clock on the wall, which anybody may set.

In 0.1.0 a clock that was set forward by 1,900 s during a cut of 10 s gave the host up, and two attempts ran beside each
other. After a clock was set back by 90 s, ends were seen 90 s late and `rung cancel` did nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.jobs.model.state import JobState
from rung.runner.launch.submit import cancel
from tests.support.pretend import Build, World, worlds


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with worlds(tmp_path, ampere=["A100"], pascal=["P100"]) as build:
        yield build


def running(world: World, **fields: object) -> str:
    job = world.submit("a", "A100", "P100", **fields)
    world.until(lambda: world.is_running(job))
    return job


def test_a_clock_that_is_set_forward_during_a_cut_gives_no_host_up(build: Build) -> None:
    world = build()
    job = running(world)
    world.engine("ampere").away = True
    world.until(lambda: world.last(job).unreachable_since is not None)
    world.set_wall_clock(+1900)
    world.turn(10)
    assert world.is_running(job) and len(world.store.attempts(job)) == 1
    world.engine("ampere").away = False
    world.until(lambda: world.last(job).unreachable_since is None)
    assert world.engine("pascal").running() == [] and world.store.orphans() == []
    assert world.job(job).reason.split("after ")[1] in {f"{seconds} s" for seconds in range(8, 16)}


@pytest.mark.parametrize("by", [-90.0, -1e6, +1e6])
def test_a_clock_that_is_set_changes_no_bound_of_a_lost_host(build: Build, by: float) -> None:
    world = build()
    job = running(world, recovery={"host_lost_after": 100})
    world.engine("ampere").away = True
    world.until(lambda: world.last(job).unreachable_since is not None)
    began = world.steady
    world.set_wall_clock(by)
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert 95 <= world.steady - began <= 115


@pytest.mark.parametrize("by", [-90.0, -1e6, +1e6])
def test_an_end_is_seen_at_once_whatever_the_clock_does(build: Build, by: float) -> None:
    world = build()
    job = running(world)
    world.set_wall_clock(by)
    world.engine("ampere").end(f"{job}/1")
    world.turn(5)
    assert world.job(job).state is JobState.SUCCEEDED


@pytest.mark.parametrize("by", [-90.0, -1e6, +1e6])
def test_cancel_works_at_once_whatever_the_clock_does(build: Build, by: float) -> None:
    world = build()
    job = running(world)
    world.set_wall_clock(by)
    cancel(world.store, world.job(job), at=world.now)
    world.turn(8)
    assert world.job(job).state is JobState.CANCELLED


@pytest.mark.parametrize("by", [-1e6, +1e6])
def test_a_stubborn_run_gets_its_grace_and_is_then_killed(build: Build, by: float) -> None:
    world = build()
    job = running(world, recovery={"grace": 10})
    ampere, forced = world.engine("ampere"), []
    ampere.stop = lambda paths, *, force: forced.append((world.steady, force))
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: forced)
    world.set_wall_clock(by)
    world.until(lambda: forced[-1][1])
    killed = next(at for at, force in forced if force)
    assert 10 <= killed - forced[0][0] <= 15


@pytest.mark.parametrize("by", [-1e6, +1e6])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_delay_before_a_relaunch_lasts_as_long_as_it_should(build: Build, by: float, restarted: bool) -> None:
    world = build()
    job = running(world)
    world.engine("ampere").lose(f"{job}/1")
    world.until(lambda: len(world.store.attempts(job)) == 2)
    world.set_wall_clock(by)
    if restarted:
        world.restart()
    began = world.steady
    world.until(lambda: f"{job}/2" in world.engine("ampere").there)
    assert 3 <= world.steady - began <= 10, "5 seconds"
