"""Tests that the folders of trials that did not win are removed, and no other folder of the job ever is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.jobs.job import main_line
from rung.jobs.model.errors import HostUnreachable
from rung.runner.checkpoints.listing import checkpoint_rows
from rung.runner.launch.submit import cancel
from tests.runner.trials.test_trial_round import LOSSES, label, play, play_one, submitted
from tests.support.pretend import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, {"ampere": ["A100"], "other": ["A100"]})
    yield made
    made.close()


def removed(world: World, host: str = "ampere") -> list[str]:
    return [name.rpartition("/")[2] for what, name in world.engine(host).calls if what == "remove"]


def folders(world: World) -> list[str]:
    """Return the checkpoint folders on the host."""
    return sorted(name for name in world.engine("ampere").files if name.endswith("checkpoints"))


def marked(world: World, job: str) -> list[int]:
    """Return the residences whose folders the store says are gone."""
    trials = [each for each in world.store.attempts(job) if each.trial]
    return [each.residence for each in trials if each.trial and each.trial.folder_removed]


def test_the_folders_of_losers_go_when_the_winner_runs_on_and_not_before(world: World) -> None:
    job = submitted(world)
    play_one(world, job, 9.0)
    world.turn(5)
    assert removed(world) == []
    play(world, job, LOSSES)
    world.until(lambda: marked(world, job) == [2])
    assert removed(world) == ["2"]
    assert folders(world) == ["3/checkpoints", "checkpoints"]
    world.turn(20)
    assert removed(world) == ["2"], "each is removed once"
    world.engine("ampere").calls.clear()
    rows, notes = checkpoint_rows(world.controller._context, world.job(job))
    assert ([row.name for row in rows], notes) == (["step_240.pt", "step_240.pt"], [])
    listed = [name for what, name in world.engine("ampere").calls if what == "list_files"]
    assert len(listed) == 2, "nobody looks into a folder that is gone"


def test_the_folder_in_which_another_winner_goes_on_is_kept(world: World) -> None:
    job = submitted(world)
    world.until(lambda: world.is_running(job))
    assert label(world.last(job)) == "lower_lr x0.1"
    world.engine("ampere").save(f"{job}/{world.last(job).number}", 280, at=world.now)
    play(world, job, {**LOSSES, "lower_lr x0.1": 0.5})
    winner = world.last(job)
    world.until(lambda: len(marked(world, job)) == 1)
    world.turn(5)
    assert str(winner.residence) not in removed(world) and "1" not in removed(world)
    world.engine("ampere").end(f"{job}/{winner.number}")
    world.until(lambda: world.job(job).ended)
    world.turn(5)
    assert folders(world) == ["2/checkpoints", "checkpoints"]


def test_a_winner_that_begins_again_in_the_folder_of_the_job_leaves_its_own(world: World) -> None:
    job = submitted(world)
    play(world, job, {**LOSSES, "lower_lr x0.1": 0.5})
    world.until(lambda: marked(world, job) == [2, 3])
    assert folders(world) == ["checkpoints"]


def test_a_cancelled_job_leaves_no_folder_of_a_trial(world: World) -> None:
    job = submitted(world)
    play_one(world, job, 2.0)
    world.until(lambda: world.is_running(job))
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    world.until(lambda: marked(world, job) == [2, 3])
    assert folders(world) == ["checkpoints"]


def unreachable(*_: object) -> None:
    raise HostUnreachable("ampere: no answer")


def test_a_controller_killed_before_the_removal_leaves_it_to_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submitted(world)
    play_one(world, job, 2.0)
    world.until(lambda: world.is_running(job))
    monkeypatch.setattr(world.engine("ampere"), "remove_residence", unreachable)
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    world.turn(20)
    assert marked(world, job) == []
    world.restart()
    monkeypatch.undo()
    world.until(lambda: marked(world, job) == [2, 3])


def test_the_folders_on_a_lost_host_go_when_it_is_back_and_what_ran_there_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submitted(world, saves=False, host_lost_after="60s")
    play_one(world, job, 2.0)
    world.until(lambda: world.is_running(job))
    ampere = world.engine("ampere")
    ampere.away = True
    world.until(lambda: world.last(job).host == "other", turns=400)
    play(world, job, {"lower_lr x0.01": 1.4, "lower_lr x0.1": 1.0})
    over, lost = (each.residence for each in world.store.attempts(job) if each.trial and each.host == "ampere")
    assert removed(world) == []
    monkeypatch.setattr(ampere, "stop", lambda paths, force: None)
    ampere.away = False
    world.until(lambda: over in marked(world, job))
    world.turn(20)
    assert removed(world) == [str(over)], "the other one still runs"
    monkeypatch.undo()
    world.until(lambda: lost in marked(world, job))
    used = {each.residence for each in main_line(world.store.attempts(job))}
    assert not used & {int(each) for each in (*removed(world), *removed(world, "other"))}


def test_a_host_that_cannot_remove_a_folder_is_asked_again_and_the_job_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submitted(world)
    monkeypatch.setattr(world.engine("ampere"), "remove_residence", unreachable)
    play(world, job, LOSSES)
    world.turn(5)
    assert world.is_running(job) and marked(world, job) == []
    monkeypatch.undo()
    world.until(lambda: marked(world, job) == [2])


def test_a_job_without_trials_is_looked_at_again_only_when_it_was_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.submit("b", "A100")
    world.until(lambda: world.is_running(job))
    world.turn(3)
    folders, looked = world.controller._chores._trial_folders, list[str]()
    has_trials = folders._has_trials
    monkeypatch.setattr(folders, "_has_trials", lambda each: looked.append(each.id) or has_trials(each))
    for _ in range(3):
        folders.turn(world.store.jobs(active=True))
    before = len(looked)
    assert before <= 1
    with world.store.transaction():
        world.store.set_reason(job, "another one")
    folders.turn(world.store.jobs(active=True))
    assert looked == [job] * (before + 1)


def test_a_job_is_known_to_have_trials_when_its_first_one_is_written(world: World) -> None:
    job = submitted(world)
    folders = world.controller._chores._trial_folders
    world.until(lambda: any(each.is_trial for each in world.store.attempts(job)))
    folders.turn(world.store.jobs(active=True))
    assert folders._jobs == {job}
