"""Tests what the controller does with the jobs of a host that does not answer, loses power or is no longer listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.engine import DOCKER
from rung.jobs.model.gpu import Member
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.runner.controller.orphans import OrphanSweep
from rung.runner.launch.submit import cancel, retry
from rung.runner.seams.engine import Observation, Presence
from rung.runner.state.store import Orphan
from tests.support.pretend import Build


def test_an_unreachable_host_is_shown_and_nothing_is_stopped_or_started(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
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
    assert world.event_kinds(job).count("unreachable") == world.event_kinds(job).count("reachable") == 1


def test_a_job_that_cannot_be_followed_can_be_cancelled(build: Build) -> None:
    """Such as one whose log finds no room on this disk; in 0.1.0 a cancel did nothing."""
    world = build()
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
    ampere = world.engine("ampere")
    ampere.there[f"{job}/1"] = Observation(Presence.WAITING, detail="no room for its log here")
    world.until(lambda: world.job(job).reason == "no room for its log here")
    world.turn(20)
    assert ("stop", f"{job}/1") not in ampere.calls
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.CANCELLED and ("stop", f"{job}/1") in ampere.calls


def test_a_run_that_finished_while_its_host_was_away_is_not_run_again(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
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
    world.until(lambda: world.is_running(job))
    world.engine("ampere").away = True
    since = world.until(lambda: world.last(job).unreachable_since)
    while world.now < since + 298:
        world.turn()
        assert len(world.store.attempts(job)) == 1 and world.job(job).state is JobState.RUNNING
    if restarted:
        world.restart()  # it counts anew: the clock may have been set while nobody counted
    world.until(lambda: len(world.store.attempts(job)) == 2, turns=320 if restarted else 10)
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
    world.until(lambda: world.is_running(job))
    ampere = world.engine("ampere")
    ampere.away = True
    world.until(lambda: world.last(job).host == "pascal" and world.is_running(job))
    other = world.submit("b", "A100")
    world.turn(5)
    assert world.job(other).state is JobState.QUEUED
    ampere.away, ampere.calls = False, []
    world.until(lambda: world.is_running(other))
    assert world.leases() == {"GPU-ampere-0": f"{other}/1", "GPU-pascal-0": f"{job}/2"}
    done = [call for call in ampere.calls if call[0] in ("stop", "start")]
    assert done == [("stop", f"{job}/1"), ("start", f"{other}/1")]
    assert world.store.orphans() == []
    assert world.job(job).state is JobState.RUNNING and len(world.store.attempts(job)) == 2


def test_a_lost_attempt_that_had_finished_does_not_count(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", "P100", recovery={"host_lost_after": 60})
    world.until(lambda: world.is_running(job))
    world.engine("ampere").away = True
    world.until(lambda: world.last(job).host == "pascal" and world.is_running(job))
    world.engine("ampere").end(f"{job}/1")
    world.engine("ampere").away = False
    world.until(lambda: world.store.orphans() == [])
    assert world.job(job).state is JobState.RUNNING
    world.engine("pascal").end(f"{job}/2")
    world.until(lambda: world.job(job).ended)
    assert [attempt.outcome for attempt in world.store.attempts(job)] == [Outcome.FAULT, Outcome.SUCCEEDED]


def test_a_job_that_no_other_host_could_take_waits_for_its_own(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", recovery={"host_lost_after": 60})
    world.until(lambda: world.is_running(job))
    world.engine("ampere").away = True
    world.until(lambda: "no other host could take the job" in world.job(job).reason)
    world.engine("ampere").away = False
    world.until(lambda: world.last(job).unreachable_since is None)
    assert world.is_running(job) and len(world.store.attempts(job)) == 1


def test_time_in_which_the_controller_was_stopped_does_not_count_as_time_away(build: Build) -> None:
    """Such as a pause on a full disk: the host may have been back all the while, and the run with it."""
    world = build()
    job = world.submit("a", "A100", "P100", recovery={"host_lost_after": 300})
    world.until(lambda: world.is_running(job))
    world.engine("ampere").away = True
    world.until(lambda: world.last(job).unreachable_since)
    world.engine("ampere").away = False
    world.pass_time(3600)
    world.turn(20)
    assert world.is_running(job) and len(world.store.attempts(job)) == 1
    assert world.last(job).unreachable_since is None


def test_with_host_lost_after_off_a_job_never_moves(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", "P100", recovery={"host_lost_after": "off"})
    world.until(lambda: world.is_running(job))
    world.engine("ampere").away = True
    world.turn(2)
    world.pass_time(1e6)
    world.turn(10)
    assert world.is_running(job) and len(world.store.attempts(job)) == 1


def test_the_time_limit_restarts_each_time_a_host_becomes_unreachable(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", "P100", recovery={"host_lost_after": 100})
    world.until(lambda: world.is_running(job))
    for _ in range(3):
        world.engine("ampere").away = True
        world.turn(80)
        world.engine("ampere").away = False
        world.until(lambda: world.last(job).unreachable_since is None)
    assert len(world.store.attempts(job)) == 1


def test_after_a_power_loss_the_job_restarts_on_the_same_host(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", "P100")
    world.until(lambda: world.is_running(job))
    ampere = world.engine("ampere")
    ampere.away = True
    world.turn(10)
    ampere.lose(f"{job}/1")
    ampere.away = False
    world.until(lambda: len(world.store.attempts(job)) == 2 and world.is_running(job))
    assert world.last(job).host == "ampere"
    assert ampere.running() == [f"{job}/2"]


def test_a_missing_container_is_a_fault_and_not_started_again(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
    del world.engine("ampere").there[f"{job}/1"]
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert "the container is gone" in world.store.attempts(job)[0].fault.evidence


def test_a_job_that_a_host_cannot_start_twice_moves_to_another_host(build: Build) -> None:
    world = build()
    world.engine("ampere").refuses = "no space left on device"
    job = world.submit("a", "A100", "P100")
    world.until(lambda: world.is_running(job))
    attempts = world.store.attempts(job)
    assert [attempt.host for attempt in attempts] == ["ampere", "ampere", "pascal"]
    assert "on another host" not in attempts[1].because
    assert "on another host than ampere" in attempts[2].because
    assert attempts[1].not_before is not None and attempts[1].not_before > attempts[0].ended_at
    assert world.leases() == {"GPU-pascal-0": f"{job}/3"}


def test_without_another_host_the_job_is_retried_on_the_same_one(build: Build) -> None:
    world = build(ampere=["A100"])
    world.engine("ampere").refuses = "no space left on device"
    job = world.submit("a", "A100", recovery={"infra_retries": 2})
    world.until(lambda: world.job(job).ended)
    attempts = world.store.attempts(job)
    assert [attempt.host for attempt in attempts] == ["ampere"] * 3
    assert not any("another host" in attempt.because for attempt in attempts)
    assert world.job(job).state is JobState.FAILED and world.leases() == {}


def test_a_host_that_is_no_longer_listed_counts_as_unreachable(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", "P100", recovery={"host_lost_after": 60})
    world.until(lambda: world.is_running(job))
    listed = world.engines.hosts
    world.engines.hosts = [host for host in listed if host.name != "ampere"]
    world.until(lambda: "not in the list of hosts any more" in world.job(job).reason)
    assert world.is_running(job)
    world.until(lambda: world.last(job).host == "pascal" and world.is_running(job))
    assert world.leases() == {"GPU-ampere-0": f"{job}/1", "GPU-pascal-0": f"{job}/2"}
    world.engines.hosts = listed
    world.until(lambda: world.store.orphans() == [])
    assert world.engine("ampere").running() == []


def test_cancel_of_a_job_on_a_lost_host_ends_and_its_container_is_stopped_later(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", recovery={"host_lost_after": 60})
    world.until(lambda: world.is_running(job))
    world.engine("ampere").away = True
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.CANCELLED
    assert world.leases() == {"GPU-ampere-0": f"{job}/1"}
    world.engine("ampere").away = False
    world.until(lambda: world.store.orphans() == [])
    assert world.engine("ampere").running() == [] and world.leases() == {}


def test_a_job_that_waits_to_move_can_be_cancelled_and_retried(build: Build) -> None:
    world = build()
    job, other = world.submit("a", "A100", "P100", recovery={"host_lost_after": 60}), world.submit("b", "P100")
    world.until(lambda: world.is_running(job) and world.is_running(other))
    world.engine("ampere").away = True
    world.until(lambda: "pascal's only one is in use by" in world.job(job).reason)
    assert world.job(job).state is JobState.RECOVERING
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    world.engine("ampere").away = False
    world.until(lambda: world.store.orphans() == [])
    retry(world.store, world.job(job), {}, at=world.now)
    world.until(lambda: world.is_running(job))
    assert (world.last(job).host, world.last(job).residence, world.last(job).number) == ("ampere", 2, 2)


def test_what_is_left_of_an_attempt_on_several_hosts_is_that_of_each_host(tmp_path: Path) -> None:
    attempt = Attempt("a-1", 1, "turing", Knobs(), None, "because", members=(Member("pascal"),), engine=DOCKER)
    alone = replace(attempt, number=2, members=())
    context: Any = SimpleNamespace(
        paths=HomePaths(tmp_path), store=SimpleNamespace(attempts=lambda job_id: [attempt, alone])
    )
    sweep, whole = OrphanSweep(context), HomePaths(tmp_path).attempt("a-1", 1)
    assert sweep.paths_of(Orphan("a-1", 1, "turing", 0.0)) == whole.of_node(0)
    assert sweep.paths_of(Orphan("a-1", 1, "pascal", 0.0)) == whole.of_node(1)
    assert sweep.paths_of(Orphan("a-1", 2, "turing", 0.0)) == HomePaths(tmp_path).attempt("a-1", 2)
