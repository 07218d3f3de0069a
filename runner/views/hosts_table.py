"""Shows the reports of hosts as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rung.runner.hosts.health import failed_checks
from rung.runner.hosts.survey import GpuState, Report
from rung.runner.views.tables import table

HEADERS = ("HOST", "ENGINE", "DISK", "GPU", "NAME", "SM", "MEMORY", "DRIVER", "STATE")


def hosts_table(reports: Sequence[Report], width: int) -> str:
    """Return a line for every GPU, and one for every host without a GPU."""
    return table(HEADERS, [row for report in reports for row in _rows(report)], width)


def _rows(report: Report) -> Iterator[Sequence[Any]]:
    name = report.host.name
    if report.away:
        label = "refused" if report.refused else "unreachable"
        yield name, None, None, None, None, None, None, None, f"{label}: {report.away.removeprefix(f'{name}: ')}"
        return
    engine = report.engine or "none"
    disk = _gibibytes(min((disk.free for disk in report.disks), default=None))
    if not report.gpus:
        missing = "no GPU driver" if report.driver_missing else "no GPU"
        problem = report.gpu_troubles[0] if report.gpu_troubles else missing
        yield name, engine, disk, None, None, None, None, None, "; ".join([problem, *_unwell(report)])
    for number, state in enumerate(report.gpus):
        gpu = state.gpu
        capability = f"{gpu.capability[0]}.{gpu.capability[1]}"
        host = (name, engine, disk) if number == 0 else ("", "", "")
        use = "; ".join([_use(state), *(_unwell(report) if number == 0 else [])])
        yield *host, gpu.index, gpu.name, capability, _gibibytes(gpu.memory or None), gpu.driver or None, use


def _unwell(report: Report) -> list[str]:
    return [f"unwell: {one.message}" for one in failed_checks(report.health)]


def _use(state: GpuState) -> str:
    uses = [f"job {state.job}"] if state.job else []
    if state.foreign_processes:
        uses.append(f"not ours: {', '.join(state.foreign_processes)}")
    return "; ".join(uses) or "free"


def _gibibytes(size: int | None) -> str | None:
    return None if size is None else f"{size / (1 << 30):.0f} GiB"


def hosts_json(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Return the data of `rung hosts --json`."""
    return [_host(report) for report in reports]


def _host(report: Report) -> dict[str, Any]:
    host = report.host
    return {
        "name": host.name,
        "address": host.address,
        "groups": list(host.groups),
        "reachable": not report.away,
        "reason": report.away or report.engine_trouble or "; ".join(report.gpu_troubles),
        "engine": report.engine or None,
        "disks": [{"mount": disk.mount, "free": disk.free, "total": disk.total} for disk in report.disks],
        "clock_skew": report.clock_skew,
        "gpus": [_gpu(state) for state in report.gpus],
        "health": [{"state": h.state, "what": h.what, "said": h.message, "fix": h.fix} for h in report.health],
    }


def _gpu(state: GpuState) -> dict[str, Any]:
    gpu = state.gpu
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "type": gpu.type,
        "capability": list(gpu.capability),
        "memory": gpu.memory,
        "driver": gpu.driver,
        "job": state.job,
        "strangers": list(state.foreign_processes),
    }
