"""Tests the trial of an lr between two tenths with a fake host, also over restarts of the controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.trials.test_trial_round import label, write
from tests.support.pretend import Build, World, worlds

# The loss at the end of each trial; it falls on the way there. None: it is NaN at step 6.
BETWEEN_WINS: dict[str, float | None] = {"lower_lr x0.01": 1.8, "lower_lr x0.1": None, "lower_lr x0.02": 1.5}
BETWEEN_LOSES: dict[str, float | None] = {**BETWEEN_WINS, "lower_lr x0.02": 1.85}


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with worlds(tmp_path, ampere=["A100"]) as build:
        yield build


def failed_at_once(world: World) -> str:
    """Return a job that is NaN at step 4, before it has learned anything, and has its first trial."""
    knobs = {"mode": "inside", "lr": 0.1, "precision": "amp_fp16"}
    job = world.submit("a", "A100", recovery={"trials": "on"}, knobs=knobs)
    world.until(lambda: world.is_running(job))
    write(world, job, lambda step: 2.0 * 9.0**step if step < 4 else float("nan"), 6)
    world.until(lambda: world.last(job).is_trial)
    return job


def play(world: World, job: str, losses: dict[str, float | None], restart: bool) -> None:
    """Run the trials until the job's own run goes on; `restart`: kill the controller in every trial."""
    while world.last(job).is_trial:
        world.until(lambda: world.is_running(job))
        attempt = world.last(job)
        trial, loss = attempt.trial, losses[label(attempt)]
        assert trial is not None
        until = trial.until
        if loss is None:
            write(world, job, lambda step: 2.0 if step < 6 else float("nan"), 8)
        else:
            end = loss
            write(world, job, lambda step: end * (1 + 0.2 * (until - step) / until), until)  # noqa: B023
        if restart:
            world.turn()
            world.restart()
        number = attempt.number
        world.until(lambda: world.last(job).number > number or not world.last(job).is_trial)  # noqa: B023


@pytest.mark.parametrize("restart", [False, True])
def test_an_lr_between_two_tenths_that_is_better_goes_on(build: Build, restart: bool) -> None:
    world = build()
    job = failed_at_once(world)
    play(world, job, BETWEEN_WINS, restart)
    attempts, last = world.store.attempts(job), world.last(job)
    assert [label(each) for each in attempts[1:]] == list(BETWEEN_WINS)
    assert last.asked.lr == pytest.approx(0.002) and last.trial is not None and last.trial.goes_on
    (table,) = [event.data["table"] for event in world.store.events(job) if event.kind == "trials"]
    assert [(row["rung"], row["verdict"]) for row in table] == [
        ("lower_lr x0.01", "survived"),
        ("lower_lr x0.1", "nan_loss at step 6"),
        ("lower_lr x0.02", "won"),
    ]


@pytest.mark.parametrize("restart", [False, True])
def test_the_winner_goes_on_where_the_one_between_is_no_better(build: Build, restart: bool) -> None:
    world = build()
    job = failed_at_once(world)
    play(world, job, BETWEEN_LOSES, restart)
    assert [label(each) for each in world.store.attempts(job)[1:4]] == list(BETWEEN_LOSES)
    assert len(world.store.attempts(job)) == 5 and world.last(job).asked.lr == pytest.approx(0.001)
