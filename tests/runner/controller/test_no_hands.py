"""Tests that a job in which Rung has no hands says so at once, and that no rung is tried that cannot reach it."""

from __future__ import annotations

from typing import Any

import pytest

from rung.jobs.model.hands import describe_no_hands
from rung.jobs.model.state import JobState
from tests.support.pretend import Build, World

LOSSES = "".join(f"step {step} loss 2.0\n" for step in range(2, 12))
NAN = "".join(f"step {step} loss nan\n" for step in range(12, 16))


def started(build: Build, log: str, **fields: Any) -> tuple[World, str]:
    world = build(ampere=["A100"])
    world.engine("ampere").has_hands = False
    job = world.submit("a", "A100", **{"knobs": {"mode": "zero-edit"}, **fields})
    world.until(lambda: world.is_running(job))
    world.engine("ampere").append_log(f"{job}/1", log.encode())
    return world, job


def test_a_log_with_losses_and_nothing_from_inside_says_so_at_once(build: Build) -> None:
    """In 0.1.0 such a job ended with "2 rungs took effect and none cured it"."""
    world, job = started(build, LOSSES)
    world.until(lambda: "no_hands" in world.event_kinds(job))
    assert world.job(job).reason.startswith("Rung has no hands in this job: losses were seen in its log")
    assert world.is_running(job)
    world.turn(5)
    assert world.event_kinds(job).count("no_hands") == 1


def test_rungs_that_cannot_reach_the_script_are_skipped_and_not_counted(build: Build) -> None:
    world, job = started(build, LOSSES + NAN)
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.FAILED and len(world.store.attempts(job)) == 1
    reason = world.job(job).reason
    assert "no rung can be taken. Rung has no hands in this job" in reason and "took effect" not in reason
    (stopped,) = [event.data for event in world.store.events(job) if event.kind == "stopped"]
    assert "can only be set from inside" in stopped["skipped"]["raise_clip"]


def test_a_knob_with_a_flag_is_still_set(build: Build) -> None:
    knobs = {"mode": "zero-edit", "lr": 0.1}
    world, job = started(build, LOSSES + NAN, run="x --lr {lr}", knobs=knobs)
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert world.last(job).rung == "lower_lr"


def test_the_reason_from_inside_is_shown(build: Build) -> None:
    world, job = started(build, "rung| hands none why=isolated flag=-I\n" + LOSSES)
    world.until(lambda: "no_hands" in world.event_kinds(job))
    assert "started with an option that ignores PYTHONPATH (flag -I)" in world.job(job).reason
    assert "What to do: remove -I, -E or -S" in world.job(job).reason


def test_a_job_by_flags_needs_no_hands(build: Build) -> None:
    world, job = started(build, LOSSES, run="x --lr {lr}", knobs={"lr": 0.1})
    world.turn(5)
    assert "no_hands" not in world.event_kinds(job) and world.last(job).hands is None


@pytest.mark.parametrize("why", ["silent", "part_failed", "not_started", "python_too_old", "no_update", "isolated"])
def test_every_reason_has_its_words_and_its_advice(why: str) -> None:
    said = describe_no_hands(f"{why}; error it broke")
    assert why not in said.replace("isolated Python", "") and "(error it broke)" in said and "What to do: " in said


def test_every_reason_of_the_records_is_known() -> None:
    from rung_inside.contract.records import REASONS

    for why in REASONS:
        assert why not in describe_no_hands(why)
