"""Owns what is known of the hosts just now: each is looked at beside the loop, again and again while somebody waits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rung.jobs.model.errors import EngineError, HostError
from rung.jobs.model.host import Host
from rung.runner.context import Context
from rung.runner.hosts.survey import GpuState, Report
from rung.runner.placement.scheduler import HostView, Slot
from rung.runner.task_pool import Task

# A stranger may take a GPU at any time; this is how old the last look may be when we take one.
LOOK_SECONDS = 5.0
# With less than this a job cannot even begin: its files and its log go there.
LEAST_DISK = 64 << 20
UNSEEN = "has not been looked at yet"


class HostPool:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._reports: dict[str, Report] = {}
        self._seen_at: dict[str, float] = {}
        self._gpus: dict[str, tuple[GpuState, ...]] = {}
        self._away_since: dict[str, float] = {}

    def refresh(self) -> None:
        """Take the reports that have come, and send for those that are old."""
        for host in self._context.engines.hosts:
            key = f"host {host.name}"
            errand = self._context.tasks.take(key)
            if errand is not None:
                self._take(host, errand)
            old = self._context.now() - self._seen_at.get(host.name, float("-inf")) >= LOOK_SECONDS
            if old and not self._context.tasks.busy(key):
                self._send(key, host)

    def forget(self, host: str) -> None:
        """Have a host looked at anew before anything is placed there."""
        self._seen_at.pop(host, None)

    def away_since(self, host: str) -> float | None:
        return self._away_since.get(host)

    def sites(self, load: dict[str, int]) -> list[HostView]:
        return [self._site(host, load.get(host.name, 0)) for host in self._context.engines.hosts]

    def _send(self, key: str, host: Host) -> None:
        self._context.tasks.send(key, host.name, partial(self._context.engines.look, host))

    def _take(self, host: Host, errand: Task) -> None:
        error = errand.future.exception()
        # Whatever went wrong with a look, a host that was not seen is one that cannot be used now.
        said = str(error) if isinstance(error, (EngineError, HostError)) else f"the look at it failed: {error!r}"
        report: Report = Report(host, away=said) if error else errand.future.result()
        self._reports[host.name] = report
        self._seen_at[host.name] = self._context.now()
        if report.away:
            self._away_since.setdefault(host.name, self._context.now())
        else:
            self._away_since.pop(host.name, None)
            self._gpus[host.name] = report.gpus

    def _site(self, host: Host, load: int) -> HostView:
        report = self._reports.get(host.name)
        # What a host that is away had when it was last seen, it still has.
        seen = replace(report or Report(host, away=UNSEEN), gpus=self._gpus.get(host.name, ()))
        return replace(site_of(seen), load=load, trouble=trouble(report))


def site_of(report: Report) -> HostView:
    """Return a host as the placing sees it."""
    slots = tuple(Slot(state.gpu, _stranger(state)) for state in report.gpus)
    return HostView(report.host, slots, trouble(report))


def _stranger(state: GpuState) -> str:
    """Say who is on a GPU, were it not leased by us: processes, or a container of another store."""
    return ", ".join([*state.foreign_processes, *([f"job {state.job}"] if state.job else [])])


def trouble(report: Report | None) -> str:
    """Say why nothing can be sent to a host now; empty where it can."""
    if report is None:
        return UNSEEN
    if report.refused:
        return f"refuses us ({_about(report, report.away)})"
    if report.away:
        return f"is unreachable ({_about(report, report.away)})"
    if not report.engine:
        return f"has no engine that answers ({_about(report, report.engine_trouble or 'none is installed')})"
    full = [disk for disk in report.disks if disk.free < LEAST_DISK]
    return f"has a full disk ({full[0].free >> 20} MiB free on {full[0].mount})" if full else ""


def _about(report: Report, text: str) -> str:
    return text.removeprefix(f"{report.host.name}: ")[:160]
