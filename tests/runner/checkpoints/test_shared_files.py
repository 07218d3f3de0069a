"""Tests jobs on hosts that share a folder: when one host is lost, any other one shows what the job has saved there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rung.jobs.job import Job
from rung.jobs.model.errors import HostUnreachable
from rung.jobs.model.host import Host, with_same_folder
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.checkpoints.shared_files import first_answer, hosts_with_files
from tests.support.pretend import Build, World, worlds

HOSTS = {"ampere": ["A100"], "pascal": ["P100"], "turing": ["TITANRTX"]}
TO_PASCAL = ("A100", "P100")


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with worlds(tmp_path, **HOSTS) as build:
        yield build


def share(world: World, *names: str) -> None:
    """Let these hosts have one folder, and so the same files of jobs."""
    first = world.engine(names[0])
    for name in names:
        world.engine(name).files, world.engine(name).verdicts = first.files, first.verdicts
    world.engines.hosts = [
        replace(host, shared="/srv/rung", shares_with=tuple(name for name in names if name != host.name))
        if host.name in names
        else host
        for host in world.engines.hosts
    ]


def lose_ampere(world: World, *requests: str, **fields: object) -> str:
    """Return a job that has saved a checkpoint on ampere, of which no copy is here, and whose host is away then."""
    checkpoint = {"mirror": "off", **dict(fields.pop("checkpoint", {}))}  # type: ignore[call-overload]
    job = world.submit("a", *requests, recovery={"host_lost_after": 60}, checkpoint=checkpoint, **fields)
    world.until(lambda: world.is_running(job))
    world.engine("ampere").save(f"{job}/1", 10, 20)
    world.turn(3)
    world.engine("ampere").away = True
    return job


def test_a_job_goes_on_from_what_it_had_saved_in_the_folder_that_its_lost_host_shares(build: Build) -> None:
    world = build()
    share(world, "ampere", "pascal")
    job = lose_ampere(world, *TO_PASCAL)
    world.until(lambda: len(world.store.attempts(job)) == 2 and world.is_running(job))
    moved = world.last(job)
    assert (moved.host, moved.residence, moved.resumed_from, moved.planned_step) == ("pascal", 2, "step_20.pt", 20)
    # Copied from one folder to the other on the shared disk, and not over the network.
    assert moved.checkpoint_from == ("ampere", 1)
    assert [what for what, _ in world.engine("pascal").calls if what in ("copy", "deliver")] == ["copy"]


def test_without_a_shared_folder_it_waits_for_its_host(build: Build) -> None:
    world = build()
    job = lose_ampere(world, *TO_PASCAL)
    world.until(lambda: "no copy of its checkpoints is here" in world.job(job).reason)
    assert len(world.store.attempts(job)) == 1


def test_what_lies_in_a_volume_is_on_the_lost_host_alone(build: Build) -> None:
    world = build()
    share(world, "ampere", "pascal")
    job = lose_ampere(world, *TO_PASCAL, checkpoint={"dir": "/ckpt/a"}, volumes=["/data:/ckpt"])
    world.until(lambda: "no copy of its checkpoints is here" in world.job(job).reason)


def test_while_all_hosts_of_the_folder_are_away_the_job_waits_and_does_not_begin_anew(build: Build) -> None:
    world = build()
    share(world, "ampere", "turing")
    world.engine("turing").away = True
    job = lose_ampere(world, *TO_PASCAL)
    world.until(lambda: "no copy of its checkpoints is here" in world.job(job).reason)
    world.engine("turing").away = False
    world.until(lambda: world.job(job).state is JobState.RECOVERING)
    world.engine("turing").away = True
    world.turn(20)
    assert len(world.store.attempts(job)) == 1 and world.job(job).state is JobState.RECOVERING


def test_a_list_that_has_lost_the_host_tells_nothing_about_its_folder() -> None:
    hosts = [Host("a", "a", shared="/srv", shares_with=("b",)), Host("b", "b", shared="/srv", shares_with=("a",))]
    assert with_same_folder(hosts, "a") == ("a", "b")
    assert with_same_folder(hosts[1:], "a") == ("a",)


@pytest.mark.parametrize(("folder", "found"), [("out", ("a", "b")), ("/ckpt", ("a",))])
def test_only_a_relative_folder_of_checkpoints_is_shared(folder: str, found: tuple[str, ...]) -> None:
    hosts = [Host("a", "a", shared="/srv", shares_with=("b",)), Host("b", "b", shared="/srv", shares_with=("a",))]
    spec = JobSpec.model_validate({"name": "a", "run": "x", "checkpoint": {"dir": folder}})
    job = Job("a-1", spec, JobState.RUNNING, "", 0.0, 0.0, spec.knobs.knobs())
    assert hosts_with_files(hosts, job, "a") == found


class Asked:
    def __init__(self, name: str, *, away: bool = False) -> None:
        self.host, self.away = name, away

    def ask(self) -> str:
        if self.away:
            raise HostUnreachable(f"{self.host}: no answer")
        return self.host


def test_the_first_host_that_answers_counts_and_if_none_does_the_first_error() -> None:
    away, there, other = Asked("a", away=True), Asked("b"), Asked("c", away=True)
    assert first_answer([away, there], Asked.ask) == "b"
    with pytest.raises(HostUnreachable, match=r"^a: no answer$"):
        first_answer([away, other], Asked.ask)
