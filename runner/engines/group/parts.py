"""Turns the request of an attempt on several hosts into one for each of them. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rung.runner.seams.engine import PartEngine, Request

# Where the ranks meet at the leading host: below the ports that a system gives away by itself.
FIRST_PORT, PORTS = 12000, 20000


@dataclass(frozen=True)
class Part:
    """One of several hosts, and the GPUs that its part of the attempt uses."""

    host: str
    engine: PartEngine
    gpus: tuple[str, ...]


def meeting_port(store_id: str, job_id: str, attempt: int) -> int:
    """Return the port where the ranks meet: jobs that share their first host differ in it, as do attempts."""
    return FIRST_PORT + zlib.crc32(f"{store_id} {job_id} {attempt}".encode()) % PORTS


def part_requests(request: Request, gpus: Sequence[tuple[str, ...]], meeting: str) -> list[Request]:
    """Return the request of each part, in the order of their ranks, with its GPUs.

    `meeting`: `ADDRESS:PORT` of the leading host. The ranks reach each other only in the network of their hosts.
    """
    assert request.container is not None, "only hosts with containers share an attempt"
    found = []
    for node, its in enumerate(gpus):
        env = {"RUNG_NODES": str(len(gpus)), "RUNG_NODE_RANK": str(node), "RUNG_MEETING": meeting}
        container = replace(request.container, gpus=its, network="host")
        paths = request.paths.of_node(node)
        found.append(replace(request, env={**request.env, **env}, paths=paths, container=container, nodes=len(gpus)))
    return found
