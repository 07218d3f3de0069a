"""Tests when jobs get their turns: at once when something happened to them, and not at all when nothing did."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Job
from rung.jobs.model.errors import StoreBlocked
from rung.jobs.model.state import JobState
from rung.runner.context import TURN_SECONDS
from rung.runner.controller import controller
from rung.runner.controller.glance import Glance
from rung.runner.engines.process import ProcessEngine
from rung.runner.launch.submit import cancel
from rung.runner.state.store import Store
from rung.runner.task_pool import Task
from tests import pace
from tests.support.pretend import Build, World

JOB = {
    "run": "x {lr} {clip}",
    "knobs": {"lr": 1e-3, "clip": 5.0},
    "recovery": {"ladder": ["raise_clip"], "trials": "off"},
}
NAN = b"".join(b"step %d loss nan\n" % step for step in range(50, 80))
# A little more than the controller waits, because the sums of its clock are rounded.
POLL = 1.01 * TURN_SECONDS
SLEEPS = "import time; print('step 1 loss 2.0', flush=True); time.sleep(1000)"


def at_once(world: World, condition: Callable[[], Any], polls: int = 0) -> None:
    """Take turns until something holds; no time passes but for so many pauses before an engine is asked again."""
    for _ in range(60):
        if condition():
            return
        world.controller.turn()
        if tasks := world.controller._context.tasks._tasks.values():
            finish(tasks)
        elif not condition() and not world.controller._agenda._due:
            assert polls, [(job.id, job.state, job.reason) for job in world.store.jobs()]
            polls -= 1
            world.pass_time(POLL)
    raise AssertionError([(job.id, job.state, job.reason) for job in world.store.jobs()])


def finish(tasks: Collection[Task]) -> None:
    assert not concurrent.futures.wait([task.future for task in tasks], timeout=600).not_done


def running_here(world: World) -> str:
    """Return a real process on this machine that has printed one line and sleeps."""
    job = world.submit("here", run=["python3", "-c", SLEEPS], image=None)
    patience = pace.Patience(60)
    while not world.is_running(job):
        assert not patience.is_over(), world.job(job)
        world.turn()
    return job


def end(world: World, job: str) -> None:
    """End a process on this machine as a person would."""
    cancel(world.store, world.job(job), at=world.now)
    patience = pace.Patience(60)
    while not world.job(job).ended:
        assert not patience.is_over(), world.job(job)
        world.turn()


def test_jobs_that_are_left_by_a_long_turn_come_first_in_the_next(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = build(ampere=["A100"] * 5)
    jobs = [world.submit(name, "A100", **JOB) for name in "abcde"]
    world.until(lambda: all(map(world.is_running, jobs)))
    loop, taken = world.controller, list[str]()

    def turn(job: Job) -> None:
        taken.append(job.id)
        world.pass_time(0.6 * controller.MOST_TURN_SECONDS)

    monkeypatch.setattr(loop, "_turn", turn)
    due = set(jobs)
    monkeypatch.setattr(loop, "_find_due", lambda: due | loop._agenda.take())
    loop.turn()
    assert taken == jobs[:2]
    loop.turn()
    # The first two are due again, but they wait for the others.
    assert taken == jobs[:4]
    due = set()
    loop.turn()
    assert taken == [*jobs, jobs[0]]


def test_from_a_fault_to_the_relaunch_nothing_waits_for_a_clock(build: Build) -> None:
    world = build(ampere=["A100"])
    job = world.submit("a", "A100", **JOB)
    world.until(lambda: world.is_running(job))
    world.engine("ampere").append_log(f"{job}/1", NAN)
    # One until the line is read, and one until the engine is asked whether the attempt has ended.
    at_once(world, lambda: world.engine("ampere").running() == [f"{job}/2"], polls=2)
    assert world.last(job).rung == "raise_clip"


def test_a_submitted_job_is_launched_without_waiting_for_a_clock(build: Build) -> None:
    world = build(ampere=["A100"])
    world.turn()
    job = world.submit("a", "A100")
    at_once(world, lambda: world.engine("ampere").running() == [f"{job}/1"])


def test_a_cancelled_job_is_stopped_without_waiting_for_a_clock(build: Build) -> None:
    world = build(ampere=["A100"])
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
    cancel(world.store, world.job(job), at=world.now)
    at_once(world, lambda: world.engine("ampere").running() == [])
    at_once(world, lambda: world.job(job).state is JobState.CANCELLED, polls=1)


def test_a_cancel_by_another_process_is_seen_in_the_next_turn(build: Build) -> None:
    world = build(ampere=["A100"])
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
    other = Store(world.folder / "rung.db")
    cancel(other, other.job(job), at=world.now)
    other.close()
    at_once(world, lambda: world.engine("ampere").running() == [])


def test_a_process_to_which_nothing_happens_is_neither_asked_about_nor_given_a_turn(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = build()
    job = running_here(world)
    world.turn(3)
    asked: list[Path] = []
    given: list[str] = []
    observe, turn = ProcessEngine.observe, world.controller._turn
    monkeypatch.setattr(
        ProcessEngine, "observe", lambda self, paths: (asked.append(paths.folder), observe(self, paths))[1]
    )
    monkeypatch.setattr(world.controller, "_turn", lambda each: (given.append(each.id), turn(each)))
    for _ in range(25):
        world.controller.turn()
        world.pass_time(POLL)
    # In these 5 seconds at most the look that comes every 30 seconds, and the turn that takes its result.
    assert len(asked) <= 1 and len(given) <= 3
    monkeypatch.undo()
    end(world, job)


def test_what_a_process_prints_is_read_at_the_next_glance(build: Build) -> None:
    world = build()
    job = running_here(world)
    world.turn(3)
    log = world.controller._context.paths.attempt(job, 1).log
    with log.open("ab") as stream:
        stream.write(b"step 2 loss 1.5\n")
    world.pass_time(POLL)
    at_once(world, lambda: world.last(job).furthest_step == 2)
    end(world, job)


@pytest.mark.parametrize(("size", "threads"), [(6 * 1024, 0), (6 * 1024 + 1, 1)])
def test_a_few_lines_are_read_in_the_loop_and_more_of_them_by_a_thread(
    build: Build, monkeypatch: pytest.MonkeyPatch, size: int, threads: int
) -> None:
    world = build()
    job = running_here(world)
    world.turn(3)
    context, begun = world.controller._context, []
    call = context.call_engine
    monkeypatch.setattr(context, "call_engine", lambda *words: (begun.append(words), call(*words))[1])
    with context.paths.attempt(job, 1).log.open("ab") as stream:
        stream.write(b"step 2 loss 1.5\n".ljust(size - 1, b"x") + b"\n")
    world.pass_time(POLL)
    at_once(world, lambda: world.last(job).furthest_step == 2)
    assert len(begun) == threads
    monkeypatch.undo()
    end(world, job)


def test_the_more_attempts_there_are_the_fewer_glances_there_are(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    world = build()
    job = running_here(world)
    looks: list[int] = []
    look = Glance.look
    monkeypatch.setattr(Glance, "look", lambda self, *only: (looks.append(len(self)), look(self, *only))[1])
    world.turn(10)
    often = len(looks)
    monkeypatch.setattr(controller, "GLANCE_SECONDS_EACH", 5.0)
    looks.clear()
    world.turn(10)
    assert set(looks) == {1} and len(looks) <= 3 < often
    end(world, job)


def test_a_turn_that_the_store_cut_short_is_made_up_for(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    world = build(ampere=["A100"])
    job = world.submit("a", "A100", **JOB)
    world.until(lambda: world.is_running(job))
    world.engine("ampere").append_log(f"{job}/1", NAN)

    def full(self: Store) -> Any:
        raise StoreBlocked("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "transaction", full)
        with pytest.raises(StoreBlocked):
            for _ in range(5):
                world.pass_time(POLL)
                world.controller.turn()
                finish(world.controller._context.tasks._tasks.values())
    assert world.is_running(job)
    at_once(world, lambda: world.engine("ampere").running() == [f"{job}/2"], polls=2)


def test_many_jobs_at_once_are_placed_in_several_turns(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    world = build(ampere=["A100"])
    world.turn()
    jobs = [world.submit(f"j{number}") for number in range(6)]
    apply = world.controller._placer.apply

    def slow(result: Any, job: Any) -> None:
        world.pass_time(0.15)
        apply(result, job)

    monkeypatch.setattr(world.controller._placer, "apply", slow)
    placed = []
    while any(world.job(job).state is JobState.QUEUED for job in jobs):
        before = sum(world.job(job).state is JobState.QUEUED for job in jobs)
        world.controller.turn()
        placed.append(before - sum(world.job(job).state is JobState.QUEUED for job in jobs))
        finish(world.controller._context.tasks._tasks.values())
        assert len(placed) < 50
    assert max(placed) == 2, "two of them take longer than the time for placing"
    world.until(lambda: all(world.is_running(job) for job in jobs))


def test_the_end_of_a_run_that_is_being_stopped_is_seen_at_once(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    world, waits = build(ampere=["A100"]), list[float]()
    ampere, agenda = world.engine("ampere"), world.controller._agenda
    monkeypatch.setattr(agenda, "wait", waits.append)
    job = world.submit("a", "A100", **JOB)
    world.until(lambda: world.is_running(job))
    world.controller.wait()
    ampere.stop = lambda paths, *, force: None  # type: ignore[method-assign]
    ampere.append_log(f"{job}/1", NAN)
    world.until(lambda: world.job(job).state is JobState.STOPPING)
    for _ in range(3):  # its engine has been asked
        world.controller.turn()
        finish(world.controller._context.tasks._tasks.values())
    world.controller.wait()
    assert waits == [TURN_SECONDS, controller.STOPPING_SECONDS]
    before = len(ampere.calls)
    world.pass_time(controller.STOPPING_SECONDS)
    world.controller.turn()
    assert len(ampere.calls) == before, "nothing shows that it has ended"
    ampere.requests[f"{job}/1"].paths.done.touch()
    world.pass_time(controller.STOPPING_SECONDS)
    world.controller.turn()
    finish(world.controller._context.tasks._tasks.values())
    assert [what for what, _ in ampere.calls[before:]] == ["observe"]


def test_while_nothing_is_written_the_jobs_are_not_looked_through_again(build: Build) -> None:
    world = build(ampere=["A100", "A100"])
    jobs = [world.submit(name, "A100", **JOB) for name in "ab"]
    world.until(lambda: all(map(world.is_running, jobs)))
    loop = world.controller
    world.turn(3)
    listed = loop._listed
    world.turn(2)
    assert loop._listed is listed and loop._look_for_other_jobs() == set()
    with world.store.transaction():
        world.store.set_reason(jobs[1], "another one")
    assert loop._look_for_other_jobs() == {jobs[1]}
    assert loop._jobs[jobs[1]].reason == "another one"


def test_after_a_store_that_was_blocked_all_jobs_are_due(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    world = build(ampere=["A100", "A100"])
    jobs = [world.submit(name, "A100", **JOB) for name in "ab"]
    world.until(lambda: all(map(world.is_running, jobs)))
    world.turn(3)
    loop = world.controller

    def blocked() -> None:
        raise StoreBlocked("locked")

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "look_for_changes", blocked)
        with pytest.raises(StoreBlocked):
            loop.turn()
    assert loop._look_for_other_jobs() == set(jobs)
