"""Tests that a run which saturates numbers says so while it runs: one event for the story, the history and the page."""

from __future__ import annotations

import click
import pytest

from rung.jobs.model.paths import HomePaths
from rung.runner.report.job_report import job_page
from rung.runner.views.history import history
from rung.runner.views.tables import history_text
from rung.runner.web.job_view import job_view
from tests.support.pretend import Build, World

KIND = "saturated"


def started(build: Build) -> tuple[World, str]:
    world = build(ampere=["A100"])
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
    return world, job


def report(world: World, job: str, updates: int, saturated: int) -> None:
    """Let the job write its record of places."""
    text = f"rung| places updates={updates} ran=head:{updates} saturated={saturated} clamped=0\n"
    world.engine("ampere").append_log(f"{job}/1", text.encode())
    world.turn(5)


def test_one_event_tells_it_in_the_story_the_history_and_on_the_page(build: Build) -> None:
    world, job = started(build)
    report(world, job, 64, 0)
    assert KIND not in world.event_kinds(job)
    report(world, job, 128, 2)
    report(world, job, 256, 4)
    (event,) = [each for each in world.store.events(job) if each.kind == KIND]
    said = "values that left a place in FP32 did not fit FP16 in 1.6 % of the updates (2 of 128): the code that takes"
    assert event.attempt == 1 and event.data["because"].startswith(said)
    assert world.job(job).reason.startswith(said)
    paths = HomePaths(world.folder)
    view = job_view(world.store, world.job(job), paths, world.now)
    assert [(line.label, line.colour) for line in view.story if line.text.startswith(said)] == [(KIND, "yellow")]
    data = history(world.store, world.job(job), paths, world.now)
    shown = click.unstyle(history_text(data, diff=False))
    assert "  saturated   in 4 of 256 updates" in shown
    assert [each["kind"] for each in data["events"]].count(KIND) == 1
    report_page = job_page(world.store, world.job(job), paths, world.now)
    assert "(2 of 128)" in report_page and "(4 of 256)" in report_page, "in the story, and beside the attempt"
    world.engine("ampere").end(f"{job}/1")
    world.until(lambda: world.job(job).ended)
    assert world.event_kinds(job).count(KIND) == 1


@pytest.mark.parametrize("updates", [512, 2048])
def test_a_single_update_is_told_when_its_share_is_certain(build: Build, updates: int) -> None:
    world, job = started(build)
    report(world, job, 64, 1)
    # One of the first updates may stay the only one of a million.
    assert KIND not in world.event_kinds(job)
    report(world, job, updates, 1)
    assert KIND not in world.event_kinds(job)
    world.engine("ampere").end(f"{job}/1")
    world.until(lambda: world.job(job).ended)
    assert (KIND in world.event_kinds(job)) is (updates < 1000)


def test_a_second_attempt_has_an_event_of_its_own(build: Build) -> None:
    world, job = started(build)
    report(world, job, 128, 2)
    world.engine("ampere").end(f"{job}/1", 1)
    world.until(lambda: world.last(job).number == 2 and world.is_running(job))
    world.engine("ampere").append_log(f"{job}/2", b"rung| places updates=8 ran=head:8 saturated=8 clamped=0\n")
    world.turn(5)
    assert [each.attempt for each in world.store.events(job) if each.kind == KIND] == [1, 2]
