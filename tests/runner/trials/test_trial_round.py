"""Tests the trials of a job with fake hosts: their order, their folders, and what a restart or a lost host changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt, Outcome, main_line
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Trial
from rung.runner.launch.submit import cancel, retry
from rung.runner.seams.engine import FileEntry
from tests.support.pretend import Build, World, worlds

# The loss that each candidate comes to, in the order in which they run; None: it is NaN at step 260.
LOSSES: dict[str, float | None] = {"lower_lr x0.1": 1.4, "raise_clip": 1.0}
# None of them comes down to the level of 2 before the fault, so that all four run.
NO_CURE: dict[str, float | None] = {"lower_lr x0.1": None, "raise_clip": 2.5, "lower_lr x0.01": 2.4, "fp32": 2.45}


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with worlds(tmp_path, ampere=["A100"]) as build:
        yield build


def submitted(world: World, saves: bool = True, **recovery: Any) -> str:
    """Submit a job and let its first attempt come to NaN at step 255, after one checkpoint if it saves any."""
    asked = {"trials": {"steps": 100, "cost": "100%"}, **recovery}
    knobs = {"mode": "inside", "lr": 0.1, "precision": "amp_fp16"}
    job = world.submit("a", "A100", recovery=asked, knobs=knobs, checkpoint={"every": 240 if saves else 9999})
    world.until(lambda: world.is_running(job))
    write(world, job, lambda step: 2.0 if step < 250 else 2.0 * 3 ** (step - 249), 254)
    if saves:
        world.engine("ampere").save(f"{job}/1", 240)
    write(world, job, lambda _: float("nan"), 257, first=255)
    world.until(lambda: len(world.store.attempts(job)) == 2)
    return job


def write(world: World, job: str, loss: Callable[[int], float], last: int, first: int = 2) -> None:
    attempt = world.last(job)
    lines = "".join(f"step {step} loss {loss(step):.6g}\n" for step in range(first, last + 1))
    world.engine(attempt.host).append_log(f"{job}/{attempt.number}", lines.encode())


def level(loss: float, _step: int) -> float:
    return loss


def trial_of(attempt: Attempt) -> Trial:
    assert attempt.trial is not None
    return attempt.trial


def label(attempt: Attempt) -> str:
    return trial_of(attempt).candidate.label


def play(world: World, job: str, losses: dict[str, float | None], restart: bool = False) -> None:
    """Run the trials of a job until its own run goes on; `restart`: kill the controller in every trial."""
    while world.last(job).is_trial:
        world.until(lambda: world.is_running(job))
        attempt = world.last(job)
        trial, loss = attempt.trial, losses[label(attempt)]
        assert trial is not None
        if loss is None:
            write(world, job, lambda step: 2.0 if step < 260 else float("nan"), 262, first=trial.start + 1)
        else:
            write(world, job, partial(level, loss), trial.until, first=trial.start + 1)
        if restart:
            world.turn()
            world.restart()
        number = attempt.number
        world.until(lambda: world.last(job).number > number or not world.last(job).is_trial)  # noqa: B023


def test_the_second_trial_wins_and_goes_on_without_a_stop(build: Build) -> None:
    world = build()
    job = submitted(world)
    play(world, job, LOSSES)
    attempts = world.store.attempts(job)
    assert [label(each) for each in attempts[1:]] == list(LOSSES)
    winner = world.last(job)
    assert winner.trial is not None and winner.trial.won and winner.trial.goes_on
    assert world.engine("ampere").running() == [f"{job}/3"] and world.is_running(job)
    assert main_line(attempts) == [attempts[0], winner]
    rows = [event.data for event in world.store.events(job) if event.kind == "trials"]
    assert [row["verdict"] for row in rows[0]["table"]] == ["survived", "won"]
    world.engine("ampere").end(f"{job}/3")
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.SUCCEEDED


def test_what_the_winner_went_through_in_its_trial_does_not_stop_it_afterwards(build: Build) -> None:
    """Ten batches of garbage lie in the window: the clipped run gets through them, and was stopped for them later."""
    world = build()
    job = submitted(world)
    play_one(world, job, 1.4)
    world.until(lambda: world.is_running(job))
    write(world, job, lambda step: 3e9 if 300 <= step < 310 else 1.0, 356, first=241)
    world.until(lambda: not world.last(job).is_trial)
    world.turn(5)
    last = world.last(job)
    assert (last.number, last.tried_until) == (3, 355) and world.is_running(job)
    write(world, job, lambda _: 3e9, 420, first=357)
    world.until(lambda: world.store.attempts(job)[2].fault)


def test_every_trial_has_a_folder_of_its_own_with_a_copy_of_the_checkpoint(build: Build) -> None:
    world = build()
    job = submitted(world)
    play(world, job, NO_CURE)
    engine, attempts = world.engine("ampere"), world.store.attempts(job)
    assert [label(each) for each in attempts if each.trial] == list(NO_CURE)
    assert [each.residence for each in attempts] == [1, 2, 3, 4, 5, 1]
    assert {each.resumed_from for each in attempts[1:]} == {"step_240.pt"}
    copies = [name for what, name in engine.calls if what == "copy"]
    assert copies == [f"step_240.pt to {residence}/checkpoints" for residence in (2, 3, 4, 5)]
    assert [entry.name for entry in engine.files["checkpoints"]] == ["step_240.pt"]


def test_another_winner_that_saved_nothing_begins_again_in_the_folder_of_the_job(build: Build) -> None:
    world = build()
    job = submitted(world)
    play(world, job, {**LOSSES, "lower_lr x0.1": 0.5})
    last = world.last(job)
    assert (last.rung, last.trial, last.resumed_from) == ("lower_lr", None, "step_240.pt")
    assert last.residence == 1 and "lower_lr x0.1 won the trials" in last.because
    assert [each.trial.won for each in world.store.attempts(job) if each.trial] == [True, False]


def test_another_winner_goes_on_from_the_checkpoint_of_its_trial(build: Build) -> None:
    world = build()
    job = submitted(world)
    world.until(lambda: world.is_running(job))
    lower = world.last(job)
    assert label(lower) == "lower_lr x0.1"
    world.engine("ampere").save(f"{job}/{lower.number}", 280, at=world.now)
    play(world, job, {**LOSSES, "lower_lr x0.1": 0.5})
    last = world.last(job)
    assert (last.rung, last.resumed_from, last.planned_step) == ("lower_lr", "step_280.pt", 280)
    assert last.residence == lower.residence


def play_one(world: World, job: str, loss: float) -> None:
    world.until(lambda: world.is_running(job))
    attempt = world.last(job)
    assert attempt.trial is not None
    write(world, job, lambda _: loss, attempt.trial.until, first=attempt.trial.start + 1)
    world.until(lambda: world.last(job).number > attempt.number)


def outline(world: World, job: str) -> list[tuple[Any, ...]]:
    keys = ("number", "rung", "asked", "residence", "resumed_from", "outcome")
    attempts = world.store.attempts(job)
    return [(*(getattr(each, key) for key in keys), each.trial and each.trial.won) for each in attempts]


def test_a_controller_killed_in_every_trial_comes_to_the_same_decision(tmp_path: Path) -> None:
    outlines = []
    for restart in (False, True):
        folder = tmp_path / str(restart)
        folder.mkdir()
        world = World(folder, {"ampere": ["A100"]})
        job = submitted(world)
        play(world, job, NO_CURE, restart=restart)
        world.until(lambda: world.is_running(job))  # noqa: B023
        starts = [name for what, name in world.engine("ampere").calls if what == "start"]
        assert starts == [f"{job}/{number}" for number in range(1, 7)]
        outlines.append(outline(world, job))
        world.close()
    assert outlines[0] == outlines[1]


def test_a_cancel_in_the_middle_of_trials_leaves_nothing_behind(build: Build) -> None:
    world = build()
    job = submitted(world)
    play_one(world, job, 2.0)
    world.until(lambda: world.is_running(job))
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.CANCELLED
    assert world.engine("ampere").running() == [] and world.leases() == {}
    retry(world.store, world.job(job), {}, at=world.now)
    world.until(lambda: world.is_running(job))
    last = world.last(job)
    assert (last.trial, last.residence, last.resumed_from) == (None, 1, "step_240.pt")


def test_a_lost_host_in_the_middle_of_trials_begins_them_anew_elsewhere(build: Build) -> None:
    world = build(ampere=["A100"], other=["A100"])
    job = submitted(world, saves=False, host_lost_after="60s")
    play_one(world, job, 2.0)
    world.until(lambda: world.is_running(job))
    world.engine("ampere").away = True
    before = len(world.store.attempts(job))
    world.until(lambda: len(world.store.attempts(job)) > before or world.job(job).ended, turns=400)
    last = world.last(job)
    assert last.host == "other" and label(last) == label(world.store.attempts(job)[1])
    lost = world.store.attempts(job)[-2]
    assert lost.host_lost and lost.outcome is Outcome.FAULT


def test_when_no_candidate_helps_the_table_says_so_and_the_ladder_ends(build: Build) -> None:
    world = build()
    job = submitted(world)
    while world.last(job).is_trial and not world.job(job).ended:
        world.until(lambda: world.is_running(job) or world.job(job).ended)
        if world.job(job).ended:
            break
        attempt = world.last(job)
        write(world, job, lambda step: 2.0 if step < 260 else float("nan"), 262, first=241)
        world.until(lambda: world.last(job).number > attempt.number or world.job(job).ended)  # noqa: B023
    assert world.job(job).state is JobState.FAILED
    tables = [event.data for event in world.store.events(job) if event.kind == "trials"]
    tried = [row["rung"] for row in tables[0]["table"]]
    # Two learning rates have failed at one step, so that no lower one is tried.
    assert tried == ["lower_lr x0.1", "raise_clip", "lower_lr x0.01", "fp32"]
    assert len(tables) == 1 and tables[0]["because"] == "no candidate got past the fault"
    assert "no rung is left" in world.job(job).reason


def test_a_run_that_no_rung_changes_is_left_alone_to_its_end(build: Build) -> None:
    """As in a curriculum: the loss jumps when the harder data begins. 0.1.0 called it a divergence three times."""
    world = build()
    asked = {"trials": {"steps": 100, "cost": "100%"}}
    knobs = {"mode": "inside", "lr": 0.1, "precision": "amp_fp16"}
    job = world.submit("a", "A100", recovery=asked, knobs=knobs, checkpoint={"every": 300})
    world.until(lambda: world.is_running(job))
    write(world, job, lambda step: 2.0 * 0.99**step, 320)
    world.engine("ampere").files["checkpoints"] = [FileEntry("step_300.pt", 10, 301.0)]
    world.engine("ampere").verdicts["step_300.pt"] = {"verdict": "healthy", "step": 300, "detail": ""}
    write(world, job, lambda step: 5.0, 420, first=321)
    world.until(lambda: world.last(job).is_trial)
    assert world.store.attempts(job)[0].fault is not None
    play(world, job, dict.fromkeys(["raise_clip", "lower_lr x0.1", "lower_lr x0.01", "fp32"], 5.0))
    alone = world.last(job)
    assert (alone.rung, alone.left_alone, alone.asked) == (None, True, world.job(job).knobs)
    assert "no rung changes it" in alone.because
    world.until(lambda: world.is_running(job))
    write(world, job, lambda step: 5.0, 900, first=alone.resume_point + 1)
    world.turn(5)
    assert world.is_running(job) and "not_learning" not in world.event_kinds(job)
    world.engine("ampere").end(f"{job}/{alone.number}")
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.SUCCEEDED


@pytest.mark.parametrize(("seconds", "rung"), [(40.0, "fp32"), (0.0, "raise_clip")])
def test_a_trial_that_is_as_good_as_a_faster_one_does_not_go_on(build: Build, seconds: float, rung: str) -> None:
    """The most likely candidate runs second, and would go on without a stop."""
    world = build()
    job = submitted(world, ladder=["raise_clip", "fp32"])
    assert [each.label for each in trial_of(world.last(job)).candidates] == ["raise_clip", "fp32"]
    for slowness in (0.0, seconds):
        world.until(lambda: world.is_running(job))
        number, trial = world.last(job).number, trial_of(world.last(job))
        write(world, job, partial(level, 1.0), trial.until - 1, first=trial.start + 1)
        world.turn(5)
        world.pass_time(slowness)
        write(world, job, partial(level, 1.0), trial.until, first=trial.until)
        world.until(lambda: world.last(job).number > number or not world.last(job).is_trial)  # noqa: B023
    last = world.last(job)
    assert (last.rung, last.trial is None) == (rung, rung == "fp32")
    times = [trial_of(each).ms for each in world.store.attempts(job)[1:3]]
    assert None not in times
    if seconds:
        assert "fp32 won the trials with a loss of 1 at step 355 (raise_clip: 1, " in last.because
        assert "x the time of a step)" in last.because
