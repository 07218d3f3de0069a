"""Tests trials side by side with fake hosts: on GPUs that nobody needs, and with the same decision as in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.errors import EngineError
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.state import JobState
from rung.runner.launch.submit import cancel
from tests.support.pretend import World

Build = Callable[..., World]
# In the order in which they are written: the most likely one last, on the job's own GPUs.
CANDIDATES = ["lower_lr x0.1", "lower_lr x0.01", "fp32", "raise_clip"]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    made: list[World] = []

    def world(**hosts: list[str]) -> World:
        made.append(World(tmp_path, hosts))
        return made[-1]

    yield world
    for each in made:
        each.close()


def submitted(world: World, fault: int = 455, network: str = "own", **recovery: Any) -> str:
    """Submit a job that comes to NaN, with a checkpoint at step 440 if that is before; return it with its trials."""
    asked = {"trials": {"steps": 100, "cost": "100%"}, **recovery}
    knobs = {"mode": "inside", "lr": 0.1, "precision": "amp_fp16"}
    shared = {"knobs": knobs, "checkpoint": {"every": 440}, "network": network}
    job = world.submit("a", "A100", recovery=asked, **shared)
    world.until(lambda: world.is_running(job))
    write(world, job, 1, lambda step: 2.0 if step < fault - 5 else 2.0 * 3 ** (step - fault + 6), fault - 1)
    if fault > 440:
        world.engine("ampere").save(f"{job}/1", 440)
    write(world, job, 1, lambda _: float("nan"), fault + 2, first=fault)
    world.until(lambda: len(world.store.attempts(job)) > 1)
    return job


def write(world: World, job: str, number: int, loss: Callable[[int], float], last: int, first: int = 2) -> None:
    lines = "".join(f"step {step} loss {loss(step):.6g}\n" for step in range(first, last + 1))
    world.engine(world.store.attempts(job)[number - 1].host).append_log(f"{job}/{number}", lines.encode())


def running(world: World, host: str = "ampere") -> list[str]:
    return sorted(name.partition("/")[2] for name in world.engine(host).running())


def label(attempt: Attempt) -> str:
    assert attempt.trial is not None
    return attempt.trial.candidate.label


def trials(world: World, job: str) -> list[Attempt]:
    return [each for each in world.store.attempts(job) if each.trial is not None]


def survive(world: World, job: str, number: int, loss: float) -> None:
    write(world, job, number, lambda _: loss, 560, first=441)


def verdicts(world: World, job: str) -> list[str]:
    (table,) = (event.data for event in world.store.events(job) if event.kind == "trials")
    return [row["verdict"].partition(" ")[0] for row in table["table"]]


def outcomes(world: World, job: str) -> list[Outcome]:
    return [each.outcome for each in trials(world, job)]


def test_all_candidates_run_at_once_and_the_last_one_waits_for_the_others_and_goes_on(build: Build) -> None:
    world = build(ampere=["A100"] * 4)
    job = submitted(world)
    assert [label(each) for each in trials(world, job)] == CANDIDATES
    world.until(lambda: running(world) == ["2", "3", "4", "5"])
    assert sorted(world.leases().values()) == [f"{job}/{number}" for number in (2, 3, 4, 5)]
    assert len({each.residence for each in world.store.attempts(job)}) == 5
    survive(world, job, 5, 1.0)
    world.turn(10)
    assert world.last(job).is_trial and world.is_running(job), "the others are not over"
    write(world, job, 2, lambda step: 2.0 if step < 460 else float("nan"), 462, first=441)
    survive(world, job, 3, 1.5)
    survive(world, job, 4, 1.4)
    world.until(lambda: not world.last(job).is_trial)
    world.turn(3)
    assert world.last(job).number == 5 and running(world) == ["5"] and list(world.leases().values()) == [f"{job}/5"]
    assert verdicts(world, job) == ["nan_loss", "survived", "survived", "won"]
    world.until(lambda: [name for what, name in world.engine("ampere").calls if what == "remove"])
    world.engine("ampere").end(f"{job}/5")
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.SUCCEEDED and world.leases() == {}


def test_a_trial_beside_that_shows_no_sign_of_life_is_stopped(build: Build) -> None:
    world = build(ampere=["A100"] * 4)
    job = submitted(world, stalled="5m")
    world.until(lambda: running(world) == ["2", "3", "4", "5"])
    for step in range(441, 460):
        for number in (3, 4, 5):
            write(world, job, number, lambda _: 2.0, step, first=step)
        world.turn(2)
        world.pass_time(20.0)
    world.until(lambda: running(world) == ["3", "4", "5"])
    stalled = trials(world, job)[0]
    assert stalled.fault is not None and stalled.fault.kind is FaultKind.STALLED
    assert stalled.trial is not None and stalled.trial.verdict == "stalled at step 1"
    assert world.is_running(job)


def test_a_trial_that_ran_beside_can_win(build: Build) -> None:
    world = build(ampere=["A100"] * 4)
    job = submitted(world)
    world.until(lambda: running(world) == ["2", "3", "4", "5"])
    for number, loss in ((2, 0.5), (3, 1.9), (4, 2.0), (5, 1.8)):
        survive(world, job, number, loss)
    world.until(lambda: len(world.store.attempts(job)) == 6)
    last = world.last(job)
    assert (last.rung, last.trial, last.residence) == ("lower_lr", None, 1) and "lower_lr x0.1 won" in last.because
    world.until(lambda: running(world) == ["6"])
    assert list(world.leases().values()) == [f"{job}/6"]


def test_the_job_waits_for_the_others_when_its_own_trial_fails_first(build: Build) -> None:
    world = build(ampere=["A100"] * 4)
    job = submitted(world)
    world.until(lambda: running(world) == ["2", "3", "4", "5"])
    write(world, job, 5, lambda step: 2.0 if step < 460 else float("nan"), 462, first=441)
    world.until(lambda: world.job(job).state is JobState.RECOVERING)
    world.turn(10)
    assert world.job(job).state is JobState.RECOVERING and len(world.store.attempts(job)) == 5
    assert "waits for the trials that run beside: attempts [2, 3, 4]" in world.job(job).reason
    for number, loss in ((2, 0.5), (3, 1.9), (4, 2.0)):
        survive(world, job, number, loss)
    world.until(lambda: len(world.store.attempts(job)) == 6)
    assert "lower_lr x0.1 won" in world.last(job).because


@pytest.mark.parametrize("why", ["another job waits", "somebody else uses them", "another job has them", "one network"])
def test_without_spare_gpus_they_run_one_after_the_other(build: Build, why: str) -> None:
    world = build(ampere=["A100"] * 2, pascal=["P100"])
    if why == "another job waits":
        world.submit("first", "P100")
        world.submit("waits", "P100")
    elif why == "another job has them":
        world.submit("other", "A100")
    elif why == "somebody else uses them":
        world.engine("ampere").foreign_processes = {"GPU-ampere-1": "python"}
    world.turn(5)
    job = submitted(world, network="host" if why == "one network" else "own")
    assert [label(each) for each in trials(world, job)] == CANDIDATES[:1]


def test_with_one_spare_gpu_two_run_at_once_and_the_others_after_them(build: Build) -> None:
    world = build(ampere=["A100"] * 2)
    job = submitted(world)
    assert [label(each) for each in trials(world, job)] == ["lower_lr x0.1", "raise_clip"]
    world.until(lambda: running(world) == ["2", "3"])
    survive(world, job, 2, 3.0)  # above the level of 2 before the fault, so that it is no cure
    survive(world, job, 3, 2.9)
    world.until(lambda: running(world) == ["4"])
    assert label(world.last(job)) == "lower_lr x0.01"
    survive(world, job, 4, 1.0)
    world.until(lambda: not world.last(job).is_trial)
    assert running(world) == ["4"]


def test_a_cancelled_job_frees_gpus_only_when_what_ran_beside_is_gone(build: Build) -> None:
    world = build(ampere=["A100"] * 4)
    job = submitted(world)
    world.until(lambda: running(world) == ["2", "3", "4", "5"])
    stop = world.engine("ampere").stop
    world.engine("ampere").stop = lambda paths, force: stop(paths, force=force) if paths.number == 5 else None  # type: ignore[method-assign]
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    world.turn(5)
    assert running(world) == ["2", "3", "4"]
    assert sorted(world.leases().values()) == [f"{job}/{number}" for number in (2, 3, 4)]
    world.engine("ampere").stop = stop  # type: ignore[method-assign]
    world.until(lambda: not world.leases())
    assert running(world) == [] and outcomes(world, job) == [Outcome.CANCELLED] * 4
    ended = [event.attempt for event in world.store.events(job) if event.kind == "ended"]
    assert sorted(number for number in ended if number) == [1, 2, 3, 4, 5]
    world.until(lambda: all(each.trial and each.trial.folder_removed for each in trials(world, job)))


def test_a_controller_killed_in_the_middle_starts_nothing_twice_and_decides_the_same(build: Build) -> None:
    world = build(ampere=["A100"] * 4)
    job = submitted(world)
    world.restart()
    world.until(lambda: running(world) == ["2", "3", "4", "5"])
    for number, loss in ((5, 1.0), (2, 2.0), (3, 1.5), (4, 1.4)):
        survive(world, job, number, loss)
        world.turn()
        world.restart()
    world.until(lambda: not world.last(job).is_trial)
    starts = [name for what, name in world.engine("ampere").calls if what == "start"]
    assert sorted(starts) == [f"{job}/{number}" for number in range(1, 6)] and running(world) == ["5"]


@pytest.mark.parametrize("own_ended", [False, True])
def test_a_lost_host_gives_up_all_of_them_and_they_begin_anew_elsewhere(build: Build, own_ended: bool) -> None:
    world = build(ampere=["A100"] * 4, other=["A100"])
    job = submitted(world, fault=55, host_lost_after="60s")
    world.until(lambda: running(world) == ["2", "3", "4"])
    if own_ended:
        write(world, job, 4, lambda step: 2.0 if step < 60 else float("nan"), 62)
        world.until(lambda: world.job(job).state is JobState.RECOVERING)
    world.engine("ampere").away = True
    world.until(lambda: world.last(job).host_lost, turns=400)
    assert [each.host_lost for each in trials(world, job)] == [True] * 3, "all at once"
    assert world.event_kinds(job).count("host_lost") == 1
    world.until(lambda: len(world.store.attempts(job)) > 4, turns=400)
    anew = world.last(job)
    assert anew.host == "other" and label(anew) == "lower_lr x0.01"
    assert {f"{job}/2", f"{job}/3"} <= set(world.leases().values())
    world.engine("ampere").away = False
    world.until(lambda: not running(world) and set(world.leases().values()) == {f"{job}/5"})


def test_no_more_run_beside_than_the_cost_allows_and_the_most_likely_one_is_among_them(build: Build) -> None:
    """Two windows of 150 steps fit into 400."""
    world = build(ampere=["A100"] * 4)
    job = submitted(world, fault=55)
    assert [label(each) for each in trials(world, job)] == ["lower_lr x0.01", "raise_clip", "lower_lr x0.1"]


def test_a_trial_that_the_machine_ended_is_run_again_before_anything_is_decided(build: Build) -> None:
    world = build(ampere=["A100"] * 4)
    job = submitted(world)
    world.until(lambda: running(world) == ["2", "3", "4", "5"])
    world.engine("ampere").lose(f"{job}/4")
    for number, loss in ((2, 2.0), (3, 1.9), (5, 1.0)):
        survive(world, job, number, loss)
    world.until(lambda: running(world) == ["6"])
    assert label(world.last(job)) == "fp32"
    survive(world, job, 6, 0.5)
    world.until(lambda: not world.last(job).is_trial)
    assert world.last(job).number == 6 and world.last(job).rung == "fp32"


def test_a_trial_that_cannot_be_started_is_tried_again_and_stops_no_other(build: Build, monkeypatch: Any) -> None:
    world = build(ampere=["A100"] * 4)
    job = submitted(world)
    ampere = world.engine("ampere")
    start = ampere.start

    def refuse_one(request: Any, secrets: Any) -> None:
        if request.attempt == 3:
            raise EngineError("ampere: no space left")
        start(request, secrets)

    monkeypatch.setattr(ampere, "start", refuse_one)
    world.until(lambda: running(world) == ["2", "4", "5"] and world.store.attempts(job)[2].fault)
    for number, loss in ((2, 2.0), (4, 1.9), (5, 1.0)):
        survive(world, job, number, loss)
    world.until(lambda: running(world) == ["6"])
    survive(world, job, 6, 1.8)
    world.until(lambda: not world.last(job).is_trial)
    assert world.last(job).rung == "raise_clip"
    assert verdicts(world, job) == ["survived", "infra_fault", "survived", "won", "clearly"]
