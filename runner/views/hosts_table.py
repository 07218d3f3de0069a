"""Shows the reports of hosts, and what is set aside there, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

from rung.jobs.model.terminal_text import clean
from rung.recovery.nodes.bad_places import BadPlace
from rung.runner.hosts.health import failed_checks
from rung.runner.hosts.survey import GpuState, Report
from rung.runner.views.tables import table
from rung.runner.views.times import clock_time

# A line of a log can be long.
MOST_EVIDENCE = 200
HEADERS = ("HOST", "ENGINE", "DISK", "GPU", "NAME", "SM", "MEMORY", "DRIVER", "STATE")


def hosts_table(reports: Sequence[Report], width: int, bad: Sequence[BadPlace] = ()) -> str:
    """Return a line for every GPU, and one for every host without a GPU."""
    aside = {(each.place.host, each.place.gpu) for each in bad if each.until is not None}
    return table(HEADERS, [row for report in reports for row in _rows(report, aside)], width)


def _rows(report: Report, aside: Container[tuple[str, str | None]]) -> Iterator[Sequence[Any]]:
    name = report.host.name
    if report.away:
        label = "refused" if report.refused else "unreachable"
        yield name, None, None, None, None, None, None, None, f"{label}: {report.away.removeprefix(f'{name}: ')}"
        return
    engine = report.engine or "none"
    disk = _gibibytes(min((disk.free for disk in report.disks), default=None))
    if report.host.site is not None:
        gpus = ", ".join(f"{count} {kind}" for kind, count in report.site_gpus) or "no GPU"
        trouble = [report.engine_trouble.removeprefix(f"{name}: ")] if report.engine_trouble else []
        yield name, engine, disk, None, None, None, None, None, "; ".join([gpus, *trouble])
        return
    if not report.gpus:
        missing = "no GPU driver" if report.driver_missing else "no GPU"
        problem = report.gpu_troubles[0] if report.gpu_troubles else missing
        yield name, engine, disk, None, None, None, None, None, "; ".join([problem, *_unwell(report)])
    for number, state in enumerate(report.gpus):
        gpu = state.gpu
        capability = f"{gpu.capability[0]}.{gpu.capability[1]}"
        host = (name, engine, disk) if number == 0 else ("", "", "")
        set_aside = ["set aside"] if (name, gpu.uuid) in aside else []
        use = "; ".join([*set_aside, _use(state), *(_unwell(report) if number == 0 else [])])
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


def why_set_aside(each: BadPlace, now: float) -> str:
    """Return why no job gets a GPU or a node now, and what a person can do, to go after its name."""
    assert each.until is not None, "it is set aside"
    chance = f"`rung hosts --clear {each.place.node or each.place.host}` gives it another chance now"
    return f"is set aside until {clock_time(each.until, now)} after {_faults(each)} in {len(each.jobs)} jobs ({chance})"


def describe_bad_place(each: BadPlace, now: float) -> str:
    """Return one sentence about a place that one job or all jobs avoid: until when, why, and the newest fault."""
    line = f"the last: {clean(each.evidence)[:MOST_EVIDENCE]}"
    if each.until is not None:
        return clean(f"{each.place.name} {why_set_aside(each, now)}; jobs {', '.join(each.jobs)}; {line}")
    jobs = [f"{job} until {clock_time(until, now)}" for job, until in each.avoided_by.items()]
    return clean(f"{each.place.name} is avoided after {_faults(each)}: by {', '.join(jobs)}; {line}")


def _faults(each: BadPlace) -> str:
    return " and ".join(each.kinds)


def hosts_json(reports: Sequence[Report], bad: Sequence[BadPlace] = (), now: float = 0.0) -> list[dict[str, Any]]:
    """Return the data of `rung hosts --json`."""
    return with_bad_places([_host(report) for report in reports], bad, now)


def with_bad_places(hosts: Sequence[dict[str, Any]], bad: Sequence[BadPlace], now: float) -> list[dict[str, Any]]:
    """Return the hosts with what is avoided on each."""
    return [
        {**host, "set_aside": [_bad_place(each, now) for each in bad if each.place.host == host["name"]]}
        for host in hosts
    ]


def _bad_place(each: BadPlace, now: float) -> dict[str, Any]:
    return {
        "node": each.place.node,
        "gpu": each.place.gpu,
        "faults": each.faults,
        "jobs": list(each.jobs),
        "last_at": each.last_at,
        "evidence": clean(each.evidence)[:MOST_EVIDENCE],
        "until_at": each.until,
        "avoided_by": [{"job": job, "until_at": until} for job, until in each.avoided_by.items()],
        "says": describe_bad_place(each, now),
    }


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
        "site": _site(report) if host.site is not None else None,
        "health": [{"state": h.state, "what": h.what, "said": h.message, "fix": h.fix} for h in report.health],
    }


def _site(report: Report) -> dict[str, Any]:
    """Return what a cluster has: its GPUs by type, and its partitions. A time is in seconds; null: no limit."""
    return {
        "gpus": dict(report.site_gpus),
        "partitions": [
            {
                "name": each.name,
                "default": each.is_default,
                "nodes": each.size,
                "gpus": each.gpus,
                "time_limit": each.time,
                "nodes_per_job": each.most_nodes,
            }
            for each in report.partitions
        ],
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
