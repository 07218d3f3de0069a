"""Tests that a cured run whose loss is level is stopped, a lower lr tried, and the better of the two goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.jobs.job import Outcome, Verdict, main_line
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from tests.runner.trials.test_trial_round import LOSSES, play, submitted, write
from tests.support.pretend import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, {"ampere": ["A100"]})
    yield made
    made.close()


def cured(world: World) -> str:
    """Return a job whose lr was lowered by trials and whose loss is level from then on, with a checkpoint at 440."""
    job = submitted(world)
    play(world, job, {**LOSSES, "lower_lr x0.1": 0.5})
    world.until(lambda: world.is_running(job))
    noise, engine = random.Random(0), world.engine("ampere")
    write(world, job, lambda _: noise.gauss(1.0, 0.01), 440, first=241)
    engine.save(f"{job}/{world.last(job).number}", 440, at=world.now)
    write(world, job, lambda _: noise.gauss(1.0, 0.01), 545, first=441)
    return job


def test_a_level_run_is_stopped_and_a_lower_lr_that_is_better_goes_on(world: World) -> None:
    job = cured(world)
    before = world.last(job)
    world.until(lambda: world.last(job).number > before.number)
    level = world.store.attempts(job)[before.number - 1]
    assert (level.outcome, level.level_at) == (Outcome.STOPPED, 440)
    assert "level" in world.event_kinds(job)
    look = world.last(job)
    assert look.is_trial and look.resumed_from == "step_240.pt" and look.asked.lr == pytest.approx(0.003)
    world.until(lambda: world.is_running(job))
    write(world, job, lambda _: 0.7, 440, first=241)
    world.until(lambda: not world.last(job).is_trial)
    assert world.engine("ampere").running() == [f"{job}/{look.number}"]
    assert main_line(world.store.attempts(job))[-1].number == look.number


def test_the_run_goes_on_as_it_is_where_a_lower_lr_is_no_better(world: World) -> None:
    job = cured(world)
    world.until(lambda: world.last(job).is_trial and world.is_running(job))
    write(world, job, lambda _: 1.2, 440, first=241)
    world.until(lambda: world.is_running(job) and not world.last(job).is_trial)
    last = world.last(job)
    assert (last.rung, last.left_alone, last.resumed_from) == (None, False, "step_440.pt")
    assert last.asked.lr == pytest.approx(0.01) and "a lower lr is not clearly better" in last.because
    rows = [event.data for event in world.store.events(job) if event.kind == "trials"]
    assert [(row["rung"], row["verdict"]) for row in rows[-1]["table"]] == [
        ("as it is", "won"),
        ("lower_lr x0.3", "clearly behind"),
    ]


def test_a_controller_killed_at_a_look_comes_to_the_same_decision(world: World) -> None:
    job = cured(world)
    world.until(lambda: world.job(job).state is JobState.STOPPING or world.last(job).is_trial)
    world.restart()
    world.until(lambda: world.last(job).is_trial and world.is_running(job))
    world.restart()
    write(world, job, lambda _: 0.7, 440, first=241)
    world.until(lambda: not world.last(job).is_trial)
    assert world.last(job).asked.lr == pytest.approx(0.003)
    starts = [name for what, name in world.engine("ampere").calls if what == "start"]
    assert starts == [f"{job}/{number}" for number in range(1, world.last(job).number + 1)]


def young(world: World, loss: float = 2.0) -> str:
    """Return a job that is asked to act on a loss that never falls: 2 at its first step, and level from then on."""
    knobs = {"mode": "inside", "lr": 0.1, "precision": "amp_fp16"}
    job = world.submit("a", "A100", recovery={"trials": "on", "not_learning": "act"}, knobs=knobs)
    world.until(lambda: world.is_running(job))
    noise = random.Random(0)
    write(world, job, lambda step: 2.0 if step == 1 else noise.gauss(loss, 0.02), 260, first=1)
    world.until(lambda: world.last(job).is_trial)
    return job


def test_a_young_run_whose_loss_never_falls_is_looked_at_from_scratch(world: World) -> None:
    job = young(world)
    first, look = world.store.attempts(job)[0], world.last(job)
    assert (first.outcome, first.level_at, first.fault) == (Outcome.STOPPED, 200, None)
    assert look.resumed_from is None and look.asked.lr == pytest.approx(0.001)
    play(world, job, {"lower_lr x0.01": 1.9, "lower_lr x0.1": 1.0})
    last = world.last(job)
    assert world.engine("ampere").running() == [f"{job}/{last.number}"]
    assert last.asked.lr == pytest.approx(0.01) and last.trial is not None and last.trial.goes_on


def test_a_young_run_goes_on_where_no_lower_lr_is_better(world: World) -> None:
    job = young(world)
    world.engine("ampere").save(f"{job}/1", 240)
    play(world, job, {"lower_lr x0.01": 2.0, "lower_lr x0.1": 2.0, "lower_lr x0.001": 2.0})
    last = world.last(job)
    assert (last.rung, last.asked.lr, last.resumed_from) == (None, pytest.approx(0.1), "step_240.pt")
    # Its end is no fault: a lower lr has been tried already.
    world.until(lambda: world.is_running(job))
    write(world, job, lambda _: 2.0, 400, first=241)
    world.engine("ampere").end(f"{job}/{last.number}")
    world.until(lambda: world.job(job).ended)
    assert (world.job(job).state, world.last(job).verdict) == (JobState.SUCCEEDED, Verdict.NOT_LEARNING)


def test_a_lower_lr_that_has_learned_as_much_as_a_level_run_goes_on(world: World) -> None:
    job = young(world, 1.5)
    play(world, job, {"lower_lr x0.01": 1.9, "lower_lr x0.1": 1.5})
    last = world.last(job)
    assert last.asked.lr == pytest.approx(0.01) and last.trial is not None and last.trial.goes_on


def test_a_fault_after_a_look_lowers_the_lr_that_won_it(world: World) -> None:
    job = young(world)
    play(world, job, {"lower_lr x0.01": 1.9, "lower_lr x0.1": 1.0})
    number = world.last(job).number
    world.engine("ampere").save(f"{job}/{number}", 380)
    write(world, job, lambda step: 1.2 - step / 1000 if step < 400 else float("nan"), 403, first=201)
    world.until(lambda: world.last(job).number > number)
    trial = world.last(job).trial
    assert trial is not None
    assert {each.knobs.lr for each in trial.candidates if each.rung == "lower_lr"} == {0.003, 0.001}


def finished_at_a_look(world: World, *, sent: bool) -> str:
    """Return a job whose run ends with exit code 0 while Rung stops it for a look; `sent`: after the signal."""
    job = cured(world)
    world.until(lambda: world.job(job).state is JobState.STOPPING)
    last = world.last(job)
    world.engine("ampere").end(f"{job}/{last.number}")
    if sent:
        HomePaths(world.folder).attempt(job, last.number).stop.touch()
    world.turn(2)
    return job


def test_a_run_that_ends_before_it_is_stopped_for_a_look_has_finished(world: World) -> None:
    job = finished_at_a_look(world, sent=False)
    last = world.last(job)
    assert (world.job(job).state, last.outcome, last.exit_code) == (JobState.SUCCEEDED, Outcome.SUCCEEDED, 0)
    # It is judged by its own losses, and nothing was tried.
    assert last.level_at is None and last.verdict is not None and "printed no loss" not in last.verdict_why


def test_a_run_that_answers_the_signal_with_exit_code_0_has_not_finished(world: World) -> None:
    job = finished_at_a_look(world, sent=True)
    world.until(lambda: world.last(job).is_trial)
    assert main_line(world.store.attempts(job))[-1].outcome is Outcome.STOPPED


def test_a_run_that_has_made_all_its_steps_is_not_looked_at(world: World) -> None:
    job = cured(world)
    number = world.last(job).number
    world.engine("ampere").append_log(f"{job}/{number}", b"Total optimization steps = 545\n")
    world.turn(10)
    assert (world.last(job).number, world.job(job).state) == (number, JobState.RUNNING)
