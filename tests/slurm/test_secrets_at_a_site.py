"""Tests that no secret stays on the disk of a cluster when an attempt ends before its wrapper has taken them up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rung.jobs.model.engine import EndedBy
from rung.jobs.model.errors import NeverTaken
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.site.settings import Asked, Site
from rung.runner.engines.slurm.engine import SlurmEngine
from rung.runner.hosts.local_remote import LocalRemote
from rung.runner.seams.engine import Container, Presence, Request
from tests import pace
from tests.slurm.site import PATIENCE, SiteLab

TOKEN = f"secret-{os.urandom(8).hex()}"


@pytest.fixture
def engine(lab: SiteLab) -> SlurmEngine:
    return SlurmEngine(LocalRemote("lab", lab.env), "abc", Site(folder=str(lab.folder / "shared"), poll=1))


def request_of(lab: SiteLab, job: str, **asked: object) -> Request:
    (lab.folder / "work").mkdir()
    paths = AttemptPaths(lab.folder / "home" / "jobs" / job / "attempts" / "1")
    paths.folder.mkdir(parents=True)
    where = Path("/rung/work"), {}, paths, Path("/rung/job/checkpoints")
    there = {"container": Container(""), "source": lab.folder / "work", "asked": Asked(**asked)}  # type: ignore[arg-type]
    return Request(job, 1, ("true",), *where, **there, secrets=("TOKEN",))  # type: ignore[arg-type]


def places(lab: SiteLab) -> list[Path]:
    files = [path for path in (lab.folder / "shared").rglob("*") if path.is_file()]
    return [path for path in files if TOKEN.encode() in path.read_bytes()]


@pytest.mark.parametrize("by", ["rung", "the cluster"])
def test_one_that_is_cancelled_in_the_queue_leaves_no_secret(lab: SiteLab, engine: SlurmEngine, by: str) -> None:
    job = f"waits-{by.split()[-1]}"
    request = request_of(lab, job, options=("--begin=now+1hour",))
    try:
        engine.start(request, {"TOKEN": TOKEN})
        assert len(places(lab)) == 1
        if by == "rung":
            engine.stop(request.paths, force=False)
        else:
            lab.cluster.run("scancel", *(each["number"] for each in lab.batch_jobs() if job in each["name"]))
        over = (Presence.ENDED, Presence.LOST)
        pace.until(lambda: engine.observe(request.paths).presence in over, PATIENCE, "its end is seen", every=0.1)
        assert by == "rung" or engine.observe(request.paths).ended_by is EndedBy.ADMINISTRATOR
        assert not places(lab)
    finally:
        engine.close()


def test_one_that_the_cluster_never_takes_leaves_no_secret(lab: SiteLab, engine: SlurmEngine) -> None:
    try:
        with pytest.raises(NeverTaken):
            engine.start(request_of(lab, "refused", gpus=1, gpu="H100"), {"TOKEN": TOKEN})
        assert not places(lab)
    finally:
        engine.close()
