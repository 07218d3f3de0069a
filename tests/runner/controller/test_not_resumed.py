"""Tests that a relaunch which begins anew, though it was given a checkpoint, says so while it runs."""

from __future__ import annotations

from tests.support.pretend import Build

SAID = "step_100.pt of step 100 was given, and the first step seen is 1: it was not loaded, or the script counts anew"


def test_the_queue_shows_it_and_one_event_tells_it(build: Build) -> None:
    world = build(ampere=["A100"])
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
    engine = world.engine("ampere")
    engine.save(f"{job}/1", 100)
    world.until(lambda: world.last(job).furthest_step == 100)
    engine.end(f"{job}/1", 1)
    world.until(lambda: world.last(job).number == 2 and world.is_running(job))
    assert world.last(job).not_resumed == SAID and world.job(job).reason == SAID
    world.turn(5)
    assert world.event_kinds(job).count("not_resumed") == 1
