"""Tests that what a job does not ask for is limited.

In 0.1.0 a job without `resources.memory` could use all memory of its host, and containers reached each other over the
engine's one bridge.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.model.errors import EngineError, SpecError
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.load import parse_spec
from rung.runner.engines.docker.container_config import (
    container_config,
    default_memory,
    planned_config,
)
from rung.runner.engines.docker.network import ADDRESSES, Networks, subnets
from rung.runner.engines.on_host.layout import HostLayout, RemoteUser
from rung.runner.seams.engine import Container, Request

GIBIBYTE = 1 << 30
IMAGE = f"r/t@sha256:{'0' * 64}"
LABELS = {"rung.store": "abc", "rung.job": "m-1", "rung.attempt": "3"}


def request(limits: Mapping[str, int] | None = None, **fields: Any) -> Request:
    paths, here = HomePaths(Path("/h")).attempt("m-1", 3), Path("/rung/work")
    container = Container(IMAGE, **fields)
    return Request("m-1", 3, ("x",), here, {}, paths, here, limits=limits or {}, container=container)


def settings_of(asked: Request, memory: int = 64 * GIBIBYTE) -> dict[str, Any]:
    layout = HostLayout(RemoteUser("/home/rung", 1000, 1000, memory), "abc", "/inside")
    found: dict[str, Any] = container_config(asked, layout)["HostConfig"]
    return found


def test_a_job_without_limits_leaves_memory_and_processes_to_its_host() -> None:
    found = settings_of(request())
    assert (found["Memory"], found["MemorySwap"], found["PidsLimit"]) == (62 * GIBIBYTE, 62 * GIBIBYTE, 4096)
    asked = settings_of(request({"memory": 63 * GIBIBYTE}))
    assert (asked["Memory"], asked["MemorySwap"]) == (63 * GIBIBYTE, 63 * GIBIBYTE)
    # The dry run does not know the host.
    assert planned_config(request())["HostConfig"]["Memory"] == "HOST MEMORY - RESERVE"


@given(st.integers(0, 1 << 45))
def test_the_default_limit_leaves_at_most_2_gibibytes_and_most_of_a_small_host_to_the_job(memory: int) -> None:
    limit = default_memory(memory)
    assert isinstance(limit, int)
    assert memory * 7 // 8 <= limit <= memory
    assert memory - limit <= 2 * GIBIBYTE


def test_the_network_is_the_jobs_own_unless_it_asks_for_another() -> None:
    assert settings_of(request())["NetworkMode"] == "rung-abc-m-1-3"
    assert [settings_of(request(network=name))["NetworkMode"] for name in ("none", "host")] == ["none", "host"]
    head = f"name: a\nrun: x\nimage: {IMAGE}\n"
    networks = ("", "network: own", "network: bridge", "network: none", "network: host")
    assert [parse_spec(f"{head}{line}\n".encode()).network for line in networks] == ["own"] * 3 + ["none", "host"]
    for other in ("container:x", "default", "rung-abc-m-1-2"):
        with pytest.raises(SpecError, match="network: input should be 'own', 'none' or 'host'"):
            parse_spec(f"{head}network: {other}\n".encode())


class Engine:
    """The networks and containers of an engine, as EngineApi shows them."""

    host = "turing"

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.names: list[str] = []
        self.refuses = ""

    def create_network(self, config: Mapping[str, Any]) -> None:
        subnet = config["IPAM"]["Config"][0]["Subnet"]
        assert config["CheckDuplicate"] and config["Driver"] == "bridge" and config["Labels"]
        if self.refuses:
            raise EngineError(self.refuses)
        if config["Name"] not in self.there and subnet in self.there.values():
            raise EngineError("turing: network x: Pool overlaps with other one on this address space")
        self.there.setdefault(config["Name"], subnet)

    def remove_network(self, name: str) -> None:
        if name in self.names:
            raise EngineError(f"network {name} has active endpoints")
        self.there.pop(name, None)

    def networks(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        return [{"Name": name} for name in self.there]

    def containers(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        return [{"Names": [f"/{name}"]} for name in self.names]


@pytest.fixture
def engine() -> Any:
    return Engine()


def test_every_attempt_gets_a_network_that_no_other_has(engine: Any) -> None:
    networks = Networks(engine, "abc")
    names = [f"rung-abc-m-{number}-1" for number in range(500)]
    for name in names:
        networks.create(name, LABELS)
        networks.create(name, LABELS)
    assert list(engine.there) == names
    found = [ipaddress.ip_network(subnet) for subnet in engine.there.values()]
    assert len(set(found)) == 500 and all(each.subnet_of(ADDRESSES) for each in found)
    for name in names:
        networks.remove(name)
    assert engine.there == {}


def test_a_new_controller_sweeps_networks_without_a_container_once(engine: Any) -> None:
    engine.there = {"rung-abc-old-1": "a", "rung-abc-runs-1": "b"}
    engine.names = ["rung-abc-runs-1"]
    networks = Networks(engine, "abc")
    networks.create("rung-abc-m-1-3", LABELS)
    assert set(engine.there) == {"rung-abc-runs-1", "rung-abc-m-1-3"}
    # One that is being started has no container yet, and stays.
    networks.create("rung-abc-m-1-4", LABELS)
    assert "rung-abc-m-1-3" in engine.there


def test_an_engine_that_makes_no_network_gives_its_error(engine: Any) -> None:
    engine.refuses = "turing: network x: no bridge for you"
    with pytest.raises(EngineError, match="no bridge for you"):
        Networks(engine, "abc").create("rung-abc-m-1-3", LABELS)
    engine.refuses = "turing: network x: Pool overlaps with other one"
    with pytest.raises(EngineError, match=r"64 subnets of .* are in use"):
        Networks(engine, "abc").create("rung-abc-m-1-3", LABELS)


def test_the_subnets_of_a_name_are_all_different() -> None:
    found = list(subnets("rung-abc-m-1-3"))
    assert len(found) == len(set(found)) == 16384
    assert found == list(subnets("rung-abc-m-1-3")) and found[0] != next(subnets("rung-abc-m-1-4"))
