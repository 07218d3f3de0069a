"""Tests when the controller calls a run stalled, with clocks that the test moves; and when it does not."""

from __future__ import annotations

from typing import Any

import pytest

from rung.jobs.model.fault import FaultKind
from rung.recovery.monitors.stalled import PACE_GAPS
from rung.runner.seams.engine import FileEntry, Observation, Presence
from tests.support.pretend import Build, World, folder_name

# Shorter than what the controller takes for a pause of its own.
QUIET_TURN = 24.0
STACKS = b"""rung: no sign of life; the stacks of all threads of its Python processes follow
Current thread 0x00007f0000000000 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/work/train.py", line 41 in next_batch
"""


def started(world: World, **recovery: Any) -> str:
    """Return a job that has shown a pace of one line a second."""
    job = world.submit("a", "A100", recovery=recovery)
    world.until(lambda: world.is_running(job))
    world.engine("ampere").stacks = STACKS
    speak(world, job, PACE_GAPS + 5)
    return job


def speak(world: World, job: str, times: int) -> None:
    for _ in range(times):
        step = (world.last(job).furthest_step or 0) + 1
        world.engine("ampere").append_log(f"{job}/{world.last(job).number}", f"step {step} loss 1.0\n".encode())
        world.until(lambda step=step: world.last(job).furthest_step == step)


def silent(world: World, seconds: float) -> None:
    for _ in range(int(seconds / (QUIET_TURN + 1))):
        world.pass_time(QUIET_TURN)
        world.turn()


def stopped(world: World, job: str) -> bool:
    return ("stop", f"{job}/1") in world.engine("ampere").calls


def test_a_silent_run_is_asked_for_its_stacks_stopped_and_relaunched(build: Build) -> None:
    world = build()
    job = started(world)
    silent(world, 1750)
    assert not stopped(world, job)
    silent(world, 200)
    world.until(lambda: stopped(world, job))
    calls = world.engine("ampere").calls
    assert calls.index(("stacks", f"{job}/1")) < calls.index(("stop", f"{job}/1"))
    fault = world.last(job).fault
    assert fault is not None and fault.kind is FaultKind.STALLED
    assert fault.evidence.startswith("no sign of life for 3") and "its longest gap before was" in fault.evidence
    assert fault.note.startswith("it stands at train.py:41 in next_batch, in threading.py:320 in wait; ")
    world.engine("ampere").end(f"{job}/1", 143)
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert world.last(job).rung is None and "no rung cures a run that hangs" in world.last(job).because


@pytest.mark.parametrize("goes_on", [False, True])
def test_after_its_stacks_only_a_line_of_its_own_is_a_sign_of_life(build: Build, goes_on: bool) -> None:
    world = build()
    job = started(world)
    silent(world, 1750)
    world.until(lambda: ("stacks", f"{job}/1") in world.engine("ampere").calls, turns=2000)
    if goes_on:
        speak(world, job, 1)
    world.turn(20)
    assert stopped(world, job) is not goes_on
    assert world.is_running(job) or not goes_on


def test_an_evaluation_that_came_once_raises_the_limit(build: Build) -> None:
    world = build()
    job = started(world)
    silent(world, 600)
    speak(world, job, 5)
    silent(world, 5400)
    assert not stopped(world, job)
    assert (world.last(job).longest_gap or 0) > 590
    silent(world, 1000)
    world.until(lambda: stopped(world, job))


@pytest.mark.parametrize("steps", [0, 3])
def test_a_run_that_has_shown_no_pace_is_never_stalled(build: Build, steps: int) -> None:
    world = build()
    job = world.submit("a", "A100")
    world.until(lambda: world.engine("ampere").running())
    speak(world, job, steps)
    silent(world, 20000)
    assert not stopped(world, job)


def test_a_new_checkpoint_is_a_sign_of_life(build: Build) -> None:
    world = build()
    job = started(world)
    engine = world.engine("ampere")
    folder = folder_name(engine.requests[f"{job}/1"])
    silent(world, 1000)
    engine.files.setdefault(folder, []).append(FileEntry("step_99.pt", 10, 99.0))
    silent(world, 1600)
    assert not stopped(world, job)
    silent(world, 1600)
    world.until(lambda: stopped(world, job))


def test_the_absence_of_a_controller_is_no_stall_but_a_new_one_goes_on_with_the_pace(build: Build) -> None:
    world = build()
    job = started(world)
    silent(world, 1700)
    world.pass_time(100_000)
    world.restart()
    silent(world, 1700)
    assert not stopped(world, job)
    silent(world, 200)
    world.until(lambda: stopped(world, job))


def test_a_controller_that_was_paused_counts_anew(build: Build) -> None:
    world = build()
    job = started(world)
    silent(world, 1000)
    world.pass_time(5000)
    silent(world, 1700)
    assert not stopped(world, job)


@pytest.mark.parametrize("seen", ["away", "waiting"])
def test_a_host_that_does_not_answer_is_no_stall(build: Build, seen: str) -> None:
    world = build()
    job = started(world, host_lost_after="off")
    engine = world.engine("ampere")
    silent(world, 1700)
    before = engine.there[f"{job}/1"]
    engine.away = seen == "away"
    if seen == "waiting":
        engine.there[f"{job}/1"] = Observation(Presence.WAITING, detail="its log cannot be read now")
    silent(world, 5000)
    engine.away, engine.there[f"{job}/1"] = False, before
    silent(world, 1700)
    assert not stopped(world, job)
    silent(world, 200)
    world.until(lambda: stopped(world, job))


def test_with_off_a_run_may_be_silent_for_ever(build: Build) -> None:
    world = build()
    job = started(world, stalled="off")
    silent(world, 20000)
    assert not stopped(world, job)


def test_a_limit_of_the_job_file_counts_from_the_first_step_on(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100", recovery={"stalled": "5m"})
    world.until(lambda: world.engine("ampere").running())
    world.engine("ampere").requests[f"{job}/1"].paths.log.write_bytes(b"compiling\n")
    silent(world, 1000)
    assert not stopped(world, job)
    speak(world, job, 1)
    silent(world, 270)
    assert not stopped(world, job)
    silent(world, 60)
    world.until(lambda: stopped(world, job))


def test_the_time_before_the_first_step_is_not_the_pace(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100")
    world.until(lambda: world.engine("ampere").running())
    world.engine("ampere").requests[f"{job}/1"].paths.log.write_bytes(b"compiling\n")
    silent(world, 1000)
    speak(world, job, PACE_GAPS + 5)
    world.turn(3)
    assert 0 < (world.last(job).longest_gap or 0) < 30


def test_a_second_stall_needs_twice_the_time(build: Build) -> None:
    world = build()
    job = started(world)
    silent(world, 1950)
    world.until(lambda: stopped(world, job))
    world.engine("ampere").end(f"{job}/1", 143)
    world.until(lambda: world.is_running(job) and world.last(job).number == 2, turns=400)
    speak(world, job, PACE_GAPS + 5)
    silent(world, 3500)
    assert ("stop", f"{job}/2") not in world.engine("ampere").calls
    silent(world, 200)
    world.until(lambda: ("stop", f"{job}/2") in world.engine("ampere").calls)
