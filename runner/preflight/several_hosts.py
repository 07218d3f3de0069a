"""Shows what each host of a job on several gets: the same requests that a launch starts there. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rung.jobs.model.host import Host
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.resources import rank_count
from rung.runner.engines.group.parts import FIRST_PORT, PORTS, meeting_port, part_requests
from rung.runner.launch.engine_fit import why_unfit
from rung.runner.seams.engine import Request
from rung.runner.state.next_attempt import Placement

# What is known only when the hosts are chosen, or when there is a store.
ADDRESS, PORT = "ADDRESS", "PORT"
# The variable that differs from host to host.
NODE_RANK = "RUNG_NODE_RANK"


@dataclass(frozen=True)
class NodePreview:
    """One of the hosts. `ranks`: the first and the last of its ranks among all."""

    host: str
    request: Request
    ranks: tuple[int, int]

    @property
    def gpus(self) -> tuple[str, ...]:
        return self.request.container.gpus if self.request.container else ()

    def to_dict(self) -> dict[str, Any]:
        return {"host": self.host, "gpus": list(self.gpus), "ranks": list(self.ranks), "env": dict(self.request.env)}


def runs_on_several(spec: JobSpec, placement: Placement, hosts: Sequence[Host]) -> bool:
    """Tell whether a job runs as parts on hosts that share a folder, or would if they were free."""
    if spec.resources.nodes == 1:
        return False
    able = {host.name for host in hosts if host.site is None and why_unfit(spec, host) is None}
    return placement.host in able or (bool(able) and placement.host not in {host.name for host in hosts})


def preview_nodes(
    spec: JobSpec, request: Request, placement: Placement, hosts: Sequence[Host], store_id: str | None
) -> tuple[NodePreview, ...]:
    """Return what each host would get. Without a place now, what depends on it is a word in capital letters."""
    chosen = (placement.host, *(member.host for member in placement.members))
    names = chosen if placement.members else chosen * spec.resources.nodes
    gpus = [placement.gpus, *(member.gpus for member in placement.members)]
    uuids = (
        [tuple(gpu.uuid or str(gpu.index) for gpu in each) for each in gpus] if placement.members else [()] * len(names)
    )
    address = next((host.address_for_ranks for host in hosts if host.name == placement.host), ADDRESS)
    port = PORT if store_id is None else str(meeting_port(store_id, request.job_id, request.attempt))
    count = rank_count(spec.ranks, spec.resources.gpu, len(placement.gpus)) or 1
    parts = zip(names, part_requests(request, uuids, f"{address}:{port}"), strict=True)
    return tuple(
        NodePreview(name, its, (node * count, (node + 1) * count - 1)) for node, (name, its) in enumerate(parts)
    )


def node_lines(nodes: Sequence[NodePreview]) -> Iterator[str]:
    """Yield which ranks and GPUs each host has; one line where the hosts are not known yet."""
    if len({node.host for node in nodes}) == 1:
        first, last = nodes[0].ranks
        yield f"ranks {last - first + 1} on each of {len(nodes)} hosts that share a folder; they meet at the first one"
        return
    for node in nodes:
        first, last = node.ranks
        which = str(first) if first == last else f"{first} to {last}"
        yield f"ranks {which} on {node.host}, with {', '.join(node.gpus) or 'no GPU'}"


def meeting_text() -> str:
    """Return where the ranks meet, as far as a job file and the list of hosts tell."""
    return f"its ranks meet at the first of its hosts, at a port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1}"
