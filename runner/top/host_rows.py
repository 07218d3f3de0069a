"""Says which hosts and GPUs there are and who uses them: a row for each GPU, and one for a host without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HEADERS = ("HOST", "GPU", "USED BY")
GIBIBYTE = 1 << 30

Host = Mapping[str, Any]
Row = tuple[str, str | None, str]


def host_rows(hosts: Sequence[Host], users: Sequence[tuple[str, str]]) -> list[Row]:
    """Return the rows of hosts with their leases. `users`: the jobs that run, each with its host."""
    rows: list[Row] = []
    for host in hosts:
        here = [job for job, name in users if name == host["name"]]
        rows += _rows(host, here)
    return rows


def _rows(host: Host, here: Sequence[str]) -> Iterator[Row]:
    name = str(host["name"])
    if not host["reachable"]:
        yield name, None, f"does not answer: {str(host['reason']).removeprefix(f'{name}: ')}"
        return
    unwell = [str(each["said"]) for each in host["health"] if each["state"] != "ok" and each["said"]]
    # A job that leases no GPU is on the host's own row.
    leased = {gpu["lease"] or gpu["job"] for gpu in host["gpus"]}
    others = [job for job in here if job not in leased]
    notes = "; ".join([*([", ".join(others)] if others else []), *unwell])
    if not host["gpus"] or notes:
        yield name, None if host["gpus"] else "no GPU", notes or "free"
        name = ""
    for gpu in host["gpus"]:
        yield name, _gpu(gpu), _use(gpu)
        name = ""


def _gpu(gpu: Mapping[str, Any]) -> str:
    memory = f" {gpu['memory'] / GIBIBYTE:.0f} GiB" if gpu["memory"] else ""
    return f"{gpu['index']} {gpu['name']}{memory}"


def _use(gpu: Mapping[str, Any]) -> str:
    job = gpu["lease"] or gpu["job"]
    uses = [str(job)] if job else []
    if gpu["strangers"]:
        uses.append(f"not ours: {', '.join(gpu['strangers'])}")
    return "; ".join(uses) or "free"
