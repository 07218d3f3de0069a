"""Tests what each host of an attempt on several is asked for."""

from __future__ import annotations

from pathlib import Path

from rung.jobs.model.paths import HomePaths
from rung.runner.engines.group.parts import FIRST_PORT, PORTS, meeting_port, part_requests
from rung.runner.seams.engine import Container, Request


def request() -> Request:
    paths = HomePaths(Path("/home/x/rung")).attempt("job-1", 3)
    container = Container("train", gpus=("GPU-a",), network="own", residence=2)
    return Request(
        "job-1", 3, ("python", "a.py"), Path("/w"), {"A": "1"}, paths, Path("/rung/job/c"), container=container
    )


def test_each_gets_its_gpus_its_rank_and_the_place_to_meet() -> None:
    first, second = part_requests(request(), [("GPU-a",), ("GPU-b",)], "10.0.0.1:12345")
    for rank, (each, gpu) in enumerate(((first, "GPU-a"), (second, "GPU-b"))):
        assert each.container is not None and each.container.gpus == (gpu,) and each.container.residence == 2
        # Ranks on several hosts reach each other only in the network of the hosts.
        assert each.container.network == "host"
        wanted = {"RUNG_NODES": "2", "RUNG_NODE_RANK": str(rank), "RUNG_MEETING": "10.0.0.1:12345"}
        assert dict(each.env) == {"A": "1", **wanted} and each.nodes == 2
        assert each.paths.folder == Path(f"/home/x/rung/jobs/job-1/attempts/3/nodes/{rank}")
        assert (each.paths.job_id, each.paths.number, each.paths.home) == ("job-1", 3, Path("/home/x/rung"))
        assert each.paths.reserved == request().paths.reserved


def test_attempts_jobs_and_stores_meet_at_ports_of_their_own() -> None:
    ports = {meeting_port(*which) for which in (("s", "a-1", 1), ("s", "a-1", 2), ("s", "a-2", 1), ("t", "a-1", 1))}
    assert len(ports) == 4 and all(FIRST_PORT <= port < FIRST_PORT + PORTS for port in ports)
