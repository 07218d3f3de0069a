"""Tests that a host cannot claim the GPUs of another one. In 0.1.0 a lease was known by its UUID alone."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.engine import DOCKER
from rung.jobs.model.errors import EngineError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.state.migrations import MIGRATIONS
from rung.runner.state.store import Store
from tests.support.pretend import World

SPEC = JobSpec(name="a", run=("true",))


def attempt(job_id: str, host: str) -> Attempt:
    gpus = (Gpu("NVIDIA A100", (8, 0), 0, "GPU-1"),)
    return Attempt(job_id, 1, host, Knobs(), None, "", gpus=gpus, image="x", engine=DOCKER)


def test_two_hosts_may_report_the_same_uuid_and_each_has_its_own_lease(tmp_path: Path) -> None:
    store = Store(tmp_path / "rung.db")
    with store.transaction():
        first, second, third = (store.add_job(SPEC, tmp_path, at=1.0).id for _ in range(3))
        store.lease(attempt(first, "honest"), at=1.0)
        store.lease(attempt(second, "liar"), at=2.0)
    assert {(lease.host, lease.job_id) for lease in store.leases()} == {("honest", first), ("liar", second)}
    with pytest.raises(EngineError, match="leased already"), store.transaction():
        store.lease(attempt(third, "honest"), at=3.0)
    store.close()


def test_a_host_that_reports_the_gpu_of_another_one_blocks_nobody(tmp_path: Path) -> None:
    world = World(tmp_path, {"honest": ["A100"], "liar": ["P100"]})
    stolen = world.engine("honest").gpus[0].uuid
    world.engine("liar").gpus = (replace(world.engine("liar").gpus[0], uuid=stolen),)
    first, second = world.submit("first", "P100"), world.submit("second", "A100")
    world.until(lambda: world.is_running(first) and world.is_running(second))
    assert (world.last(first).host, world.last(second).host) == ("liar", "honest")
    world.close()


def test_the_leases_of_an_older_store_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "rung.db"
    old = sqlite3.connect(path, isolation_level=None)
    for statement in (each for version in MIGRATIONS[:4] for each in version):
        old.execute(statement)
    old.execute("PRAGMA user_version = 4")
    old.execute("INSERT INTO leases VALUES ('GPU-1', 'ampere', 'a-1', 2, 5.0)")
    old.close()
    store = Store(path)
    (lease,) = store.leases()
    assert (lease.gpu, lease.host, lease.job_id, lease.attempt, lease.taken_at) == ("GPU-1", "ampere", "a-1", 2, 5.0)
    assert store._rows("PRAGMA user_version")[0][0] == len(MIGRATIONS) >= 5
    store.close()
