"""Tests attempts at a site, which chooses the node and the GPUs by itself: Rung learns them after the start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rung.jobs.job import Outcome
from rung.jobs.model.engine import DOCKER, ENGINES, Ask, EndedBy, EngineKind, PlacedBy
from rung.jobs.site.settings import Site, Start
from tests.support.pretend import Build, World

SITE = replace(DOCKER, name="site", placed_by=PlacedBy.SITE)


@pytest.fixture
def world(build: Build, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setitem(ENGINES, SITE.name, SITE)  # type: ignore[arg-type]
    return on_engine(build, SITE)


def on_engine(build: Build, kind: EngineKind) -> World:
    world = build(cluster=["A100"])
    world.engines.hosts = [replace(host, engine=kind) for host in world.engines.hosts]
    world.engine("cluster").node = "n1"
    return world


def test_the_node_and_the_gpus_are_kept_in_the_history_and_nothing_is_leased(world: World) -> None:
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
    first = world.last(job)
    assert (first.engine, first.node, first.gpus) == (SITE, "n1", world.engine("cluster").gpus)
    assert world.leases() == {}
    assert world.engine("cluster").requests[f"{job}/1"].container.gpus == ()


@pytest.mark.parametrize("reports", [True, False])
def test_what_the_site_was_asked_for_is_kept_beside_what_its_node_reports(world: World, reports: bool) -> None:
    if not reports:
        world.engine("cluster").gpus = ()
    job = world.submit("a", "A100:2")
    world.until(lambda: world.is_running(job))
    assert (world.last(job).gpus_asked, bool(world.last(job).gpus)) == ("A100:2", reports)
    assert world.last(job).nodes == 1
    other = world.submit("b")
    world.until(lambda: world.is_running(other))
    assert world.last(other).gpus_asked is None


def test_the_way_in_which_the_site_starts_jobs_is_kept(world: World) -> None:
    site = Site(start=Start.APPTAINER)
    world.engines.hosts = [replace(host, site=site) for host in world.engines.hosts]
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
    (started,) = (event.data for event in world.store.events(job) if event.kind == "started")
    assert started == {"argv": ["x"], "start": "apptainer"}


def test_the_nodes_of_an_attempt_are_kept(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    able = replace(SITE, can_do=SITE.can_do | {Ask.NODES})
    monkeypatch.setitem(ENGINES, SITE.name, able)  # type: ignore[arg-type]
    world = on_engine(build, able)
    job = world.submit("a", "A100", resources={"nodes": 3})
    world.until(lambda: world.is_running(job))
    assert (world.last(job).nodes, world.last(job).gpus_asked) == (3, "A100:1 on each of 3 nodes")


def test_a_relaunch_asks_anew_and_may_get_another_node(world: World) -> None:
    job = world.submit("a", "A100", recovery={"infra_retries": 1})
    world.until(lambda: world.is_running(job))
    world.engine("cluster").lose(f"{job}/1")
    world.engine("cluster").node = "n2"
    world.until(lambda: len(world.store.attempts(job)) == 2 and world.is_running(job))
    assert [each.node for each in world.store.attempts(job)] == ["n1", "n2"]
    assert world.engine("cluster").requests[f"{job}/2"].container.gpus == () and world.leases() == {}


def test_an_engine_whose_gpus_rung_chooses_changes_nothing_about_them(build: Build) -> None:
    world = on_engine(build, DOCKER)
    world.engine("cluster").gpus = tuple(replace(gpu, uuid="GPU-a") for gpu in world.engine("cluster").gpus)
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
    assert world.last(job).node is None and world.leases() == {"GPU-a": f"{job}/1"}
    assert world.last(job).gpus_asked is None


def test_a_job_goes_to_the_host_whose_engine_can_do_what_it_asks(build: Build) -> None:
    world = build(weak=["A100"], able=["A100"])
    world.engines.hosts[0] = replace(world.engines.hosts[0], engine=replace(DOCKER, can_do=frozenset()))
    first, second = (world.submit(name, "A100", network="none") for name in "ab")
    world.until(lambda: world.is_running(first) and world.job(second).reason)
    world.turn(3)
    assert world.last(first).host == "able" and not world.store.attempts(second)
    assert "weak cannot do network: none" in world.job(second).reason


@pytest.mark.parametrize(
    ("said", "kept"),
    [(EndedBy.ITSELF, EndedBy.ITSELF), (EndedBy.PREEMPTION, None)],
    ids=["known", "not one of its ends"],
)
def test_what_ended_an_attempt_is_kept_where_its_engine_can_tell(build: Build, said: EndedBy, kept: EndedBy) -> None:
    world = on_engine(build, DOCKER)
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
    cluster, name = world.engine("cluster"), f"{job}/1"
    cluster.end(name)
    cluster.there[name] = replace(cluster.there[name], ended_by=said)
    world.until(lambda: world.job(job).ended)
    assert (world.last(job).outcome, world.last(job).ended_by) == (Outcome.SUCCEEDED, kept)
