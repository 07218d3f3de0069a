"""Tests that a host which cannot be asked is never taken for a host without checkpoints.

In 0.1.0 a job whose host went away while it was RECOVERING began from scratch after `host_lost_after` ("the job has
written no checkpoint"), on the same host, and set its good checkpoints aside there. A retry after a cut did the same.
The hosts here are fake; tests/security/fleet does it with real ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.jobs.model.checkpoint_verdict import CheckpointVerdict
from rung.jobs.model.errors import EngineError
from rung.jobs.model.state import JobState
from rung.runner.checkpoints.verify import AT_ONCE
from rung.runner.files.fingerprint import local_entry
from rung.runner.launch.submit import cancel, retry
from tests.support.pretend import Build, World, worlds

BOTH = ("A100", "P100")
SOON = {"recovery": {"host_lost_after": 60}}


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with worlds(tmp_path, ampere=["A100"], pascal=["P100"]) as build:
        yield build


def killed_and_away(world: World, *steps: int, **fields: object) -> str:
    """Run a job on ampere that saves, is killed, and whose host goes away before its checkpoints are looked at."""
    job = world.submit("a", *BOTH, **{**SOON, **fields})
    world.until(lambda: world.is_running(job))
    assert world.last(job).host == "ampere"
    world.engine("ampere").save(f"{job}/1", *steps)
    world.turn(3)
    world.engine("ampere").lose(f"{job}/1")
    world.until(lambda: world.job(job).state is JobState.RECOVERING)
    world.engine("ampere").away = True
    return job


def mirror(world: World, job: str, step: int) -> None:
    """Keep a healthy copy of a checkpoint here."""
    path = world.controller._context.paths.mirror(job) / f"step_{step}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"0123456789")
    os.utime(path, (1.0 + step, 1.0 + step))
    entry = local_entry(path, sampled=False)
    assert entry is not None
    with world.store.transaction():
        world.store.put_verdict(job, entry.fingerprint, CheckpointVerdict("healthy", step))


def test_a_job_whose_saved_checkpoints_cannot_be_seen_waits_and_says_for_what(build: Build) -> None:
    world = build()
    job = killed_and_away(world, 5, 10, 30)
    world.turn(300)
    assert world.job(job).state is JobState.RECOVERING and len(world.store.attempts(job)) == 1
    reason = world.job(job).reason
    assert reason.startswith("waits for ampere, unreachable since ") and "step_30.pt, step_10.pt, step_5.pt" in reason
    assert "`rung retry --give-up-hosts`" in reason
    assert world.event_kinds(job).count("waiting_for_host") == 1
    assert "no_checkpoint" not in world.event_kinds(job)


def test_it_goes_on_from_its_newest_checkpoint_when_the_host_answers_and_sets_nothing_aside(build: Build) -> None:
    world = build()
    job = killed_and_away(world, 5, 10, 30)
    world.turn(200)
    world.engine("ampere").away = False
    world.until(lambda: len(world.store.attempts(job)) == 2 and world.is_running(job))
    assert (world.last(job).host, world.last(job).resumed_from) == ("ampere", "step_30.pt")
    assert [names for names in world.engine("ampere").moved if names] == []


def test_it_moves_with_a_copy_that_is_kept_here_and_says_so(build: Build) -> None:
    world = build()
    job = killed_and_away(world, 5, 10, 30)
    mirror(world, job, 10)
    world.turn(30)
    assert len(world.store.attempts(job)) == 1, "not before the host is given up"
    world.until(lambda: len(world.store.attempts(job)) == 2)
    moved = world.last(job)
    assert (moved.host, moved.resumed_from, moved.checkpoint_from) == ("pascal", "step_10.pt", ("", 0))
    assert "a copy that is kept here" in moved.because and "what is on ampere cannot be seen" in moved.because
    assert "on another host than ampere" in moved.because


def test_it_moves_with_a_copy_when_its_host_answers_and_cannot_show_its_files(build: Build) -> None:
    world = build()
    job = killed_and_away(world, 5, 10, 30)
    mirror(world, job, 10)
    ampere = world.engine("ampere")
    ampere.away, ampere.no_files = False, "no space left on device"
    world.turn(30)
    assert len(world.store.attempts(job)) == 1 and "no space left on device" in world.job(job).reason
    world.until(lambda: world.is_running(job))
    assert (world.last(job).host, world.last(job).resumed_from) == ("pascal", "step_10.pt")


def test_with_a_copy_but_no_other_host_it_waits_for_its_own(build: Build) -> None:
    world = build(ampere=["A100"])
    job = killed_and_away(world, 5, 10, 30)
    mirror(world, job, 10)
    world.turn(200)
    assert world.job(job).state is JobState.RECOVERING and len(world.store.attempts(job)) == 1
    assert "no other host could take the job" in world.job(job).reason
    world.engine("ampere").away = False
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert world.last(job).resumed_from == "step_30.pt", "the newest one, not the copy"


def test_a_run_is_not_given_up_with_its_host_if_it_could_not_go_on_elsewhere(build: Build) -> None:
    world = build()
    job = world.submit("a", *BOTH, **SOON)
    world.until(lambda: world.is_running(job))
    world.engine("ampere").save(f"{job}/1", 5, 10)
    world.turn(3)
    world.engine("ampere").away = True
    world.turn(200)
    assert world.is_running(job) and len(world.store.attempts(job)) == 1
    assert "no copy of its checkpoints is here, so it waits for this one" in world.job(job).reason
    mirror(world, job, 10)
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert (world.last(job).host, world.last(job).resumed_from) == ("pascal", "step_10.pt")


@pytest.mark.parametrize("bound", [60, "off"])
def test_a_retry_by_a_person_follows_the_same_rule(build: Build, bound: int | str) -> None:
    world = build()
    job = killed_and_away(world, 5, 10, recovery={"host_lost_after": bound})
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    retry(world.store, world.job(job), {}, at=world.now)
    world.turn(200)
    assert world.job(job).state is JobState.QUEUED and len(world.store.attempts(job)) == 1
    assert world.job(job).reason.startswith("waits for ampere, unreachable")
    world.engine("ampere").away = False
    world.until(lambda: world.is_running(job))
    assert world.last(job).resumed_from == "step_10.pt"


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_a_person_can_give_a_host_up(build: Build, listed: bool, copied: bool) -> None:
    world = build()
    job = killed_and_away(world, 5, 10, recovery={"host_lost_after": "off"})
    if copied:
        mirror(world, job, 5)
    if not listed:
        world.engines.hosts = [host for host in world.engines.hosts if host.name != "ampere"]
    world.until(lambda: "waits for ampere" in world.job(job).reason)
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    retry(world.store, world.job(job), {}, give_up_hosts=True, at=world.now)
    world.until(lambda: len(world.store.attempts(job)) == 2)
    again = world.last(job)
    assert (again.host, again.resumed_from) == ("pascal", "step_5.pt" if copied else None)
    assert copied or "a person gave up ampere" in again.because


def test_a_host_that_is_no_longer_listed_is_waited_for(build: Build) -> None:
    world = build()
    job = killed_and_away(world, 5, 10)
    world.engines.hosts = [host for host in world.engines.hosts if host.name != "ampere"]
    world.turn(200)
    assert world.job(job).state is JobState.RECOVERING and len(world.store.attempts(job)) == 1
    assert "not in the list of hosts any more" in world.job(job).reason


def test_a_job_that_has_saved_nothing_begins_again_elsewhere_and_says_why(build: Build) -> None:
    world = build()
    job = killed_and_away(world)
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert (world.last(job).host, world.last(job).resumed_from) == ("pascal", None)
    assert "nothing is known to be saved on ampere, which cannot be asked" in world.last(job).because


def test_a_job_that_reports_no_saves_but_is_far_on_waits(build: Build) -> None:
    world = build()
    job = world.submit("a", *BOTH, **SOON)
    world.until(lambda: world.is_running(job))
    world.engine("ampere").append_log(f"{job}/1", b"step 5000 loss 1.0\n")
    world.turn(3)
    world.engine("ampere").lose(f"{job}/1")
    world.until(lambda: world.job(job).state is JobState.RECOVERING)
    world.engine("ampere").away = True
    world.turn(200)
    assert world.job(job).state is JobState.RECOVERING and len(world.store.attempts(job)) == 1


def test_a_host_that_cannot_examine_the_files_has_not_said_that_they_are_bad(build: Build) -> None:
    """In 0.1.0 a registry that was down, or a full disk of the host, made all of them `unverified`: from scratch."""
    world = build()
    job = world.submit("a", *BOTH, **SOON)
    world.until(lambda: world.is_running(job))
    ampere = world.engine("ampere")
    ampere.save(f"{job}/1", 5, 10)
    world.turn(3)
    ampere.lose(f"{job}/1")
    run = ampere.run

    def refuse(*words: object) -> tuple[int, str, str]:
        raise EngineError("ampere: no space left on device")

    ampere.run = refuse
    world.until(lambda: "waits for ampere (no space left on device)" in world.job(job).reason)
    world.turn(100)
    assert len(world.store.attempts(job)) == 1
    ampere.run = run
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert world.last(job).resumed_from == "step_10.pt"


def test_verdicts_are_kept_when_a_later_step_of_the_search_fails(build: Build) -> None:
    """0.1.0 opened all files anew after every disturbance."""
    world = build()
    job = world.submit("a", *BOTH, **SOON)
    world.until(lambda: world.is_running(job))
    ampere = world.engine("ampere")
    ampere.save(f"{job}/1", *range(1, AT_ONCE + 3))
    newest = [f"step_{step}.pt" for step in range(3, AT_ONCE + 3)]
    for name in newest:
        ampere.verdicts[name]["verdict"] = "poisoned"
    world.turn(3)
    ampere.lose(f"{job}/1")
    run = ampere.run

    def run_then_go_away(*words: object) -> tuple[int, str, str]:
        answer = run(*words)
        ampere.away = True
        return answer

    ampere.run = run_then_go_away
    world.until(lambda: "waits for ampere" in world.job(job).reason)
    assert [verdict.verdict for verdict in world.store.verdicts(job).values()] == ["poisoned"] * AT_ONCE
    ampere.away, ampere.run, ampere.calls = False, run, []
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert world.last(job).resumed_from == "step_2.pt"
    (opened,) = [name for what, name in ampere.calls if what == "run"]
    assert "step_2.pt" in opened and not any(name in opened for name in newest), "no file is opened again"
