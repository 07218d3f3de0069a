"""Tests the controller with fake hosts: order, leases, unreachable hosts, and what happens over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.runner.launch.submit import cancel, retry
from tests.support.pretend import World

FLEET = {"turing": ["TITANRTX"], "pascal": ["P100"], "ampere": ["A100"]}
Build = Callable[..., World]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    made: list[World] = []

    def world(**hosts: list[str]) -> World:
        made.append(World(tmp_path, hosts or FLEET))
        return made[-1]

    yield world
    for each in made:
        each.close()


def running(world: World, job: str) -> bool:
    return world.job(job).state is JobState.RUNNING


def kinds(world: World, job: str) -> list[str]:
    return [event.kind for event in world.store.events(job)]


# Placement and leases


def test_a_job_is_placed_leased_and_run_and_its_gpu_is_free_when_it_has_ended(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100:1")
    world.until(lambda: running(world, job))
    assert world.leases() == {"GPU-ampere-0": f"{job}/1"}
    assert (world.last(job).host, world.last(job).gpus[0].type) == ("ampere", "A100")
    assert world.engine("ampere").requests[f"{job}/1"].container.gpus == ("GPU-ampere-0",)
    world.engine("ampere").end(f"{job}/1")
    world.until(lambda: world.job(job).state is JobState.SUCCEEDED)
    assert world.leases() == {}


def test_of_two_jobs_for_the_only_a100_the_second_waits_with_a_reason(build: Build) -> None:
    world = build()
    first, second = world.submit("a", "A100:1"), world.submit("b", "A100:1")
    world.until(lambda: running(world, first))
    world.turn(3)
    assert world.job(second).state is JobState.QUEUED
    assert world.job(second).reason == f"waits for an A100: ampere's only one is in use by {first}"
    world.engine("ampere").end(f"{first}/1")
    world.until(lambda: running(world, second))
    assert world.leases() == {"GPU-ampere-0": f"{second}/1"}


def test_twenty_jobs_on_three_hosts_all_end_and_no_gpu_ever_has_two(build: Build) -> None:
    world = build()
    jobs = [world.submit(f"j{i}", "TITANRTX:1", "P100:1", "A100:1") for i in range(20)]
    order: list[str] = []
    for _ in range(600):
        for engine in world.engines.made.values():
            assert len(engine.running()) <= 1, engine.running()
        for engine in world.engines.made.values():
            order += [name for name in engine.running() if name not in order]
            if len(order) % 2 == 0:
                for name in engine.running():
                    engine.end(name)
        world.turn()
        if all(world.job(job).ended for job in jobs):
            break
        for engine in world.engines.made.values():
            for name in engine.running():
                if running(world, name.split("/")[0]):
                    engine.end(name)
    assert {world.job(job).state for job in jobs} == {JobState.SUCCEEDED}
    assert sorted(order) == sorted(f"{job}/1" for job in jobs)
    assert world.leases() == {}


def test_priority_goes_before_age(build: Build) -> None:
    world = build(ampere=["A100"])
    world.until(lambda: True)
    first = world.submit("first", "A100")
    world.until(lambda: running(world, first))
    late, urgent = world.submit("late", "A100"), world.submit("urgent", "A100", priority=5)
    world.turn(2)
    world.engine("ampere").end(f"{first}/1")
    world.until(lambda: running(world, urgent))
    assert world.job(late).state is JobState.QUEUED


def test_a_job_that_requests_no_gpu_runs_without_a_lease(build: Build) -> None:
    world = build()
    job = world.submit("a")
    world.until(lambda: running(world, job))
    assert world.leases() == {} and world.last(job).gpus == ()


def test_a_gpu_with_a_foreign_process_is_not_taken_until_that_ends(build: Build) -> None:
    world = build(ampere=["A100"])
    world.engine("ampere").foreign_processes["GPU-ampere-0"] = "pid 812 python"
    job = world.submit("a", "A100")
    world.until(lambda: "pid 812 python" in world.job(job).reason)
    assert world.engine("ampere").running() == [] and world.leases() == {}
    world.engine("ampere").foreign_processes.clear()
    world.until(lambda: running(world, job))


def test_an_image_that_no_accepted_gpu_can_run_is_refused_before_a_slot_is_spent(build: Build) -> None:
    world = build()
    world.engine("pascal").incompatibilities["P100"] = "it has no code for sm_60"
    job = world.submit("a", "P100")
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.FAILED
    assert "Tesla P100-PCIE-16GB cannot run the image: it has no code for sm_60" in world.job(job).reason
    assert world.store.attempts(job) == [] and world.leases() == {}


def test_an_incompatible_gpu_means_the_next_request(build: Build) -> None:
    world = build()
    world.engine("pascal").incompatibilities["P100"] = "it has no code for sm_60"
    job = world.submit("a", "P100", "A100")
    world.until(lambda: running(world, job))
    assert world.last(job).host == "ampere"


def test_the_lease_stays_with_the_job_while_it_recovers(build: Build) -> None:
    world = build(ampere=["A100"])
    job, other = world.submit("a", "A100"), world.submit("b", "A100")
    world.until(lambda: running(world, job))
    world.engine("ampere").lose(f"{job}/1")
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert world.leases() == {"GPU-ampere-0": f"{job}/2"}
    world.until(lambda: running(world, job))
    assert world.job(other).state is JobState.QUEUED
    assert (world.last(job).host, world.last(job).residence) == ("ampere", 1)


def test_a_job_with_a_ladder_called_auto_is_relaunched_by_what_helped_other_jobs_on_that_gpu(build: Build) -> None:
    world = build(ampere=["A100"])
    knobs = {"run": "x {lr} {clip}", "knobs": {"lr": 1e-3, "clip": 1.0}}
    gpus, asked = world.engine("ampere").gpus, Knobs(lr=1e-3, clip=1.0)
    nan = Fault(FaultKind.NAN_LOSS, "loss nan", step=50)
    for number in range(9):
        earlier = world.submit(f"earlier{number}", "A100", **knobs)
        faulty = Attempt(earlier, 1, "ampere", asked, None, "as submitted", by_person=True, gpus=gpus, fault=nan)
        cured = replace(faulty, number=2, asked=asked.but(lr=1e-4), rung="lower_lr", by_person=False, fault=None)
        with world.store.transaction():
            for attempt in (faulty, replace(cured, outcome=Outcome.SUCCEEDED)):
                world.store.put_attempt(attempt)
            world.store.move(earlier, JobState.CANCELLED, reason="long ago", at=1.0)
    job = world.submit("a", "A100", **knobs, recovery={"ladder": "auto"})
    world.until(lambda: running(world, job))
    world.engine("ampere").logs[f"{job}/1"] += b"step 50 loss 1.0\nstep 51 loss nan\n"
    world.engine("ampere").end(f"{job}/1", code=1)
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert world.last(job).rung == "lower_lr"
    assert "9 of 9 runs with nan_loss on A100 went on after lower_lr here" in world.last(job).because


# Unreachable hosts


def test_an_unreachable_host_is_shown_and_nothing_is_stopped_or_started(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100")
    world.until(lambda: running(world, job))
    ampere = world.engine("ampere")
    ampere.away, before = True, list(ampere.calls)
    world.turn(50)
    assert world.job(job).state is JobState.RUNNING
    assert world.job(job).reason.startswith("ampere is unreachable since ")
    assert ampere.calls == before
    ampere.away = False
    world.until(lambda: world.last(job).unreachable_since is None)
    assert world.job(job).reason.startswith("ampere answers again after ")
    world.turn(3)
    assert len(world.store.attempts(job)) == 1
    assert kinds(world, job).count("unreachable") == kinds(world, job).count("reachable") == 1


def test_a_run_that_finished_while_its_host_was_away_is_not_run_again(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100")
    world.until(lambda: running(world, job))
    world.engine("ampere").away = True
    world.turn(5)
    world.engine("ampere").end(f"{job}/1")
    world.engine("ampere").away = False
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.SUCCEEDED and len(world.store.attempts(job)) == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_moves_when_its_host_stays_away_for_too_long_and_not_a_second_before(
    build: Build, restarted: bool
) -> None:
    world = build()
    job = world.submit("a", "A100", "P100", recovery={"host_lost_after": 300})
    world.until(lambda: running(world, job))
    world.engine("ampere").away = True
    since = world.until(lambda: world.last(job).unreachable_since)
    while world.now < since + 298:
        world.turn()
        assert len(world.store.attempts(job)) == 1 and world.job(job).state is JobState.RUNNING
    if restarted:
        world.restart()
    world.until(lambda: len(world.store.attempts(job)) == 2)
    lost, moved = world.store.attempts(job)
    assert (lost.host_lost, lost.outcome) == (True, Outcome.FAULT)
    assert lost.ended_at is not None and lost.ended_at - since >= 300
    assert (moved.host, moved.residence) == ("pascal", 2)
    assert "on another host than ampere" in moved.because
    # The GPU of the lost attempt is not free: it may still run there.
    assert world.leases() == {"GPU-ampere-0": f"{job}/1", "GPU-pascal-0": f"{job}/2"}


def test_a_lost_hosts_stale_container_is_stopped_before_its_gpu_is_leased_again(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", "P100", recovery={"host_lost_after": 60})
    world.until(lambda: running(world, job))
    ampere = world.engine("ampere")
    ampere.away = True
    world.until(lambda: world.last(job).host == "pascal" and running(world, job))
    other = world.submit("b", "A100")
    world.turn(5)
    assert world.job(other).state is JobState.QUEUED
    ampere.away, ampere.calls = False, []
    world.until(lambda: running(world, other))
    assert world.leases() == {"GPU-ampere-0": f"{other}/1", "GPU-pascal-0": f"{job}/2"}
    done = [call for call in ampere.calls if call[0] in ("stop", "start")]
    assert done == [("stop", f"{job}/1"), ("start", f"{other}/1")]
    assert world.store.stale() == []
    assert world.job(job).state is JobState.RUNNING and len(world.store.attempts(job)) == 2


def test_a_lost_attempt_that_had_finished_does_not_count_any_more(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", "P100", recovery={"host_lost_after": 60})
    world.until(lambda: running(world, job))
    world.engine("ampere").away = True
    world.until(lambda: world.last(job).host == "pascal" and running(world, job))
    world.engine("ampere").end(f"{job}/1")
    world.engine("ampere").away = False
    world.until(lambda: world.store.stale() == [])
    assert world.job(job).state is JobState.RUNNING
    world.engine("pascal").end(f"{job}/2")
    world.until(lambda: world.job(job).ended)
    assert [attempt.outcome for attempt in world.store.attempts(job)] == [Outcome.FAULT, Outcome.SUCCEEDED]


def test_a_job_that_no_other_host_could_take_waits_for_its_own(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", recovery={"host_lost_after": 60})
    world.until(lambda: running(world, job))
    world.engine("ampere").away = True
    world.until(lambda: "no other host could take the job" in world.job(job).reason)
    world.engine("ampere").away = False
    world.until(lambda: world.last(job).unreachable_since is None)
    assert running(world, job) and len(world.store.attempts(job)) == 1


def test_with_host_lost_after_off_a_job_never_moves(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", "P100", recovery={"host_lost_after": "off"})
    world.until(lambda: running(world, job))
    world.engine("ampere").away = True
    world.turn(2)
    world.now += 1e6
    world.turn(10)
    assert running(world, job) and len(world.store.attempts(job)) == 1


def test_the_time_limit_starts_anew_each_time_a_host_becomes_unreachable(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", "P100", recovery={"host_lost_after": 100})
    world.until(lambda: running(world, job))
    for _ in range(3):
        world.engine("ampere").away = True
        world.turn(80)
        world.engine("ampere").away = False
        world.until(lambda: world.last(job).unreachable_since is None)
    assert len(world.store.attempts(job)) == 1


def test_power_loss_means_the_same_host_again_when_it_is_back(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", "P100")
    world.until(lambda: running(world, job))
    ampere = world.engine("ampere")
    ampere.away = True
    world.turn(10)
    ampere.lose(f"{job}/1")
    ampere.away = False
    world.until(lambda: len(world.store.attempts(job)) == 2 and running(world, job))
    assert world.last(job).host == "ampere"
    assert ampere.running() == [f"{job}/2"]


def test_a_container_that_is_gone_is_a_fault_and_not_a_fresh_start(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100")
    world.until(lambda: running(world, job))
    del world.engine("ampere").there[f"{job}/1"]
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert "the container is gone" in world.store.attempts(job)[0].fault.evidence


def test_a_host_that_cannot_start_a_job_gets_one_more_chance_and_then_it_goes_elsewhere(build: Build) -> None:
    world = build()
    world.engine("ampere").refuses = "no space left on device"
    job = world.submit("a", "A100", "P100")
    world.until(lambda: running(world, job))
    attempts = world.store.attempts(job)
    assert [attempt.host for attempt in attempts] == ["ampere", "ampere", "pascal"]
    assert "on another host" not in attempts[1].because
    assert "on another host than ampere" in attempts[2].because
    assert attempts[1].not_before is not None and attempts[1].not_before > attempts[0].ended_at
    assert world.leases() == {"GPU-pascal-0": f"{job}/3"}


def test_without_another_host_the_reason_names_none(build: Build) -> None:
    world = build(ampere=["A100"])
    world.engine("ampere").refuses = "no space left on device"
    job = world.submit("a", "A100", recovery={"infra_retries": 2})
    world.until(lambda: world.job(job).ended)
    attempts = world.store.attempts(job)
    assert [attempt.host for attempt in attempts] == ["ampere"] * 3
    assert not any("another host" in attempt.because for attempt in attempts)
    assert world.job(job).state is JobState.FAILED and world.leases() == {}


# People, and bugs


def test_cancel_works_for_a_job_on_a_host(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100")
    world.until(lambda: running(world, job))
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.CANCELLED
    assert world.engine("ampere").running() == [] and world.leases() == {}


def test_cancel_of_a_job_on_a_lost_host_ends_and_its_container_is_stopped_later(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", recovery={"host_lost_after": 60})
    world.until(lambda: running(world, job))
    world.engine("ampere").away = True
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.CANCELLED
    assert world.leases() == {"GPU-ampere-0": f"{job}/1"}
    world.engine("ampere").away = False
    world.until(lambda: world.store.stale() == [])
    assert world.engine("ampere").running() == [] and world.leases() == {}


def test_retry_starts_a_job_again_on_the_host_with_its_files(build: Build) -> None:
    world = build(first=["A100"], second=["A100"])
    job = world.submit("a", "A100")
    world.until(lambda: running(world, job))
    host = world.last(job).host
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    retry(world.store, world.job(job), {}, at=world.now)
    world.until(lambda: running(world, job))
    assert (world.last(job).number, world.last(job).host, world.last(job).residence) == (2, host, 1)


def test_a_restarted_controller_starts_nothing_twice(build: Build) -> None:
    world = build()
    jobs = [world.submit(f"j{i}", "TITANRTX", "P100", "A100") for i in range(5)]
    for turns in range(1, 30):
        world.turn(turns % 8 + 1)
        world.restart()
    started = [call[1] for engine in world.engines.made.values() for call in engine.calls if call[0] == "start"]
    assert len(started) == len(set(started)) == 3
    assert [world.job(job).state for job in jobs] == [JobState.RUNNING] * 3 + [JobState.QUEUED] * 2


def test_an_unexpected_error_is_shown_on_its_job_and_the_others_go_on(build: Build) -> None:
    world = build()
    broken, well = world.submit("broken", "A100"), world.submit("well", "P100")
    world.until(lambda: running(world, broken) and running(world, well))
    world.engine("ampere").breaks = ZeroDivisionError("oh")
    world.turn(30)
    assert "unexpected error with this job: ZeroDivisionError" in world.job(broken).reason
    errors = kinds(world, broken).count("stumbled")
    assert 1 <= errors <= 6, "the pause is longer each time"
    world.engine("pascal").end(f"{well}/1")
    world.until(lambda: world.job(well).state is JobState.SUCCEEDED)
    world.engine("ampere").breaks = None
    world.engine("ampere").end(f"{broken}/1")
    world.until(lambda: world.job(broken).state is JobState.SUCCEEDED)


def test_a_host_that_is_no_longer_listed_counts_as_unreachable(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", "P100", recovery={"host_lost_after": 60})
    world.until(lambda: running(world, job))
    listed = world.engines.hosts
    world.engines.hosts = [host for host in listed if host.name != "ampere"]
    world.until(lambda: "not in the list of hosts any more" in world.job(job).reason)
    assert running(world, job)
    world.until(lambda: world.last(job).host == "pascal" and running(world, job))
    assert world.leases() == {"GPU-ampere-0": f"{job}/1", "GPU-pascal-0": f"{job}/2"}
    world.engines.hosts = listed
    world.until(lambda: world.store.stale() == [])
    assert world.engine("ampere").running() == []


def test_a_job_that_waits_to_move_can_be_cancelled_and_retried(build: Build) -> None:
    world = build()
    job, other = world.submit("a", "A100", "P100", recovery={"host_lost_after": 60}), world.submit("b", "P100")
    world.until(lambda: running(world, job) and running(world, other))
    world.engine("ampere").away = True
    world.until(lambda: "pascal's only one is in use by" in world.job(job).reason)
    assert world.job(job).state is JobState.RECOVERING
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    world.engine("ampere").away = False
    world.until(lambda: world.store.stale() == [])
    retry(world.store, world.job(job), {}, at=world.now)
    world.until(lambda: running(world, job))
    assert (world.last(job).host, world.last(job).residence, world.last(job).number) == ("ampere", 2, 2)
