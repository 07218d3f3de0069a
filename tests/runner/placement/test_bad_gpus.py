"""Tests with fake hosts that a GPU where jobs die is left, set aside and used again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.jobs.model.event import EventKind
from rung.jobs.model.state import JobState
from rung.runner.views.times import clock_time
from tests.support.places import ASSERT, ECC, HOUR
from tests.support.pretend import Build, World, worlds


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with worlds(tmp_path) as build:
        yield build


def run(world: World, job: str) -> str:
    """Wait until the next attempt of a job runs; return its GPU."""
    world.until(lambda: world.is_running(job))
    return world.last(job).gpus[0].uuid


def die(world: World, job: str, line: str = ECC) -> None:
    """Let the running attempt of a job die with a line in its log."""
    last = world.last(job)
    engine, name = world.engine(last.host), f"{job}/{last.number}"
    engine.append_log(name, f"{line}\n".encode())
    engine.end(name, 1)
    world.until(lambda: world.last(job).ended_at is not None or world.last(job).number > last.number)


def succeed(world: World, job: str) -> None:
    last = world.last(job)
    world.engine(last.host).end(f"{job}/{last.number}")
    world.until(lambda: world.job(job).state is JobState.SUCCEEDED)


def set_aside(world: World, gpu: str) -> dict[str, float]:
    """Return until when a GPU is set aside for all jobs, in seconds from its last fault."""
    found = [each for each in world.store.bad_places(world.now) if each.until is not None]
    return {each.place.gpu or "": (each.until or 0.0) - each.last_at for each in found if each.place.gpu == gpu}


def test_a_job_that_died_takes_another_gpu_of_the_same_host(build: Build) -> None:
    world = build(turing=["TITANRTX", "TITANRTX"])
    job = world.submit("a", "TITANRTX")
    assert run(world, job) == "GPU-turing-0"
    die(world, job)
    assert run(world, job) == "GPU-turing-1"
    assert world.leases() == {"GPU-turing-1": f"{job}/2"}
    assert world.last(job).residence == 1, "its files are where they were"
    assert world.last(job).because.endswith("; on turing's TITANRTX 1, not where it had the fault")
    assert "the same knobs again after 5 s" in world.last(job).because


def test_a_job_that_died_takes_a_gpu_of_another_kind_before_the_same_one(build: Build) -> None:
    world = build(turing=["TITANRTX"], pascal=["P100"])
    job = world.submit("a", "TITANRTX", "P100")
    assert run(world, job) == "GPU-turing-0"
    die(world, job)
    assert run(world, job) == "GPU-pascal-0"


def test_without_another_gpu_that_is_free_a_job_takes_the_same_one(build: Build) -> None:
    world = build(turing=["TITANRTX", "TITANRTX"])
    job, other = world.submit("a", "TITANRTX"), world.submit("b", "TITANRTX")
    assert [run(world, each) for each in (job, other)] == ["GPU-turing-0", "GPU-turing-1"]
    # A third one that waits does not get the GPU in between.
    waiting = world.submit("c", "TITANRTX", priority=9)
    die(world, job)
    assert run(world, job) == "GPU-turing-0"
    assert world.last(job).because.endswith("; on turing's TITANRTX 0 again")
    assert world.job(waiting).state is JobState.QUEUED and world.is_running(other)


def test_a_fault_of_the_script_leaves_the_job_where_it_is(build: Build) -> None:
    world = build(turing=["TITANRTX", "TITANRTX"])
    job = world.submit("a", "TITANRTX")
    run(world, job)
    die(world, job, ASSERT)
    assert run(world, job) == "GPU-turing-0"
    assert "; on turing" not in world.last(job).because and world.store.bad_places(world.now) == []


def two_die(world: World) -> list[str]:
    """Have two jobs die on the only GPU, one after the other; return them. The second one recovers."""
    jobs = [world.submit("a", "A100", recovery={"infra_retries": 0}), world.submit("b", "A100")]
    for job in jobs:
        run(world, job)
        die(world, job)
    assert world.job(jobs[0]).state is JobState.FAILED
    return jobs


def test_after_two_jobs_nobody_gets_the_gpu_until_its_time_has_come(build: Build) -> None:
    world = build(ampere=["A100"])
    _, second = two_die(world)
    assert set_aside(world, "GPU-ampere-0") == {"GPU-ampere-0": HOUR}
    third = world.submit("c", "A100")
    world.turn(5)
    (bad,) = world.store.bad_places(world.now)
    until = clock_time(bad.until or 0.0, world.now)
    why = (
        f"waits for an A100: ampere's only one is set aside until {until} after cuda_fault in 2 jobs "
        "(`rung hosts --clear ampere` gives it another chance now)"
    )
    assert [world.job(job).reason for job in (second, third)] == [why, why]
    assert (world.job(second).state, world.job(third).state) == (JobState.RECOVERING, JobState.QUEUED)
    world.restart()
    world.turn(5)
    assert world.job(third).reason == why, "a new controller knows it, too"
    world.pass_time(HOUR)
    assert run(world, second) == "GPU-ampere-0"
    die(world, second)
    assert set_aside(world, "GPU-ampere-0") == {"GPU-ampere-0": 2 * HOUR}
    with world.store.transaction():
        world.store.clear_place("ampere", at=world.now)
    assert run(world, second) == "GPU-ampere-0"
    succeed(world, second)
    assert run(world, third) == "GPU-ampere-0"
    assert world.store.bad_places(world.now) == []


def test_only_the_bad_gpu_of_a_host_is_set_aside_and_no_trial_gets_it(build: Build) -> None:
    world = build(turing=["TITANRTX"] * 3)
    for name in "ab":
        job = world.submit(name, "TITANRTX")
        assert run(world, job) == "GPU-turing-0"
        die(world, job)
        assert run(world, job) == "GPU-turing-1"
        succeed(world, job)
    jobs = [world.submit(name, "TITANRTX") for name in "cd"]
    assert [run(world, job) for job in jobs] == ["GPU-turing-1", "GPU-turing-2"]
    succeed(world, jobs[1])
    placer, last = world.controller._placer, world.last(jobs[0])
    world.until(lambda: placer.spare_gpus(world.job(jobs[0]), last, 3) or world.controller._host_pool.refresh())
    ((spare,),) = placer.spare_gpus(world.job(jobs[0]), last, 3) or []
    assert spare.uuid == "GPU-turing-2"
    assert placer.elsewhere(world.job(jobs[0]), "nowhere") == ["turing"]


def test_a_host_with_nothing_but_bad_gpus_is_no_other_host(build: Build) -> None:
    world = build(ampere=["A100"], turing=["TITANRTX"])
    two_die(world)
    job = world.submit("c", "TITANRTX", "A100")
    run(world, job)
    assert world.controller._placer.elsewhere(world.job(job), "turing") == []


def test_the_events_of_a_move_say_where_to(build: Build) -> None:
    world = build(turing=["TITANRTX", "TITANRTX"])
    job = world.submit("a", "TITANRTX")
    run(world, job)
    die(world, job)
    run(world, job)
    decided = [event.data for event in world.store.events(job) if event.kind == EventKind.DECIDED]
    assert [data["gpus"] for data in decided] == [["GPU-turing-0"], ["GPU-turing-1"]]
