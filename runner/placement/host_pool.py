"""Keeps the latest report of each host, renewed every few seconds in the task pool."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rung.jobs.model.errors import EngineError, HostError
from rung.jobs.model.host import Host
from rung.jobs.site.partitions import Partition
from rung.runner.context import Context, Lasting
from rung.runner.hosts.survey import GpuState, Report
from rung.runner.launch.known_sites import keep_sites
from rung.runner.placement.places import HostView, Slot
from rung.runner.task_pool import Task

# Other people may take a GPU at any time, so a report may be this old when a GPU is chosen by it.
SURVEY_SECONDS = 5.0
# So long nobody is placed while some hosts have not answered for the first time.
FIRST_ANSWER_SECONDS = 5.0
# What is told of hosts to others is not older than this.
RECENT_SECONDS = 60.0
# With less free disk a job cannot start: its files and its log go there.
MIN_FREE_DISK = 64 << 20
UNSEEN = "has not been checked yet"


class HostPool:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._reports: dict[str, Report] = {}
        self._surveyed_at: dict[str, float] = {}
        self._gpus: dict[str, tuple[GpuState, ...]] = {}

    def refresh(self) -> None:
        """Take the reports that are done, and renew those that are old."""
        for host in self._context.engines.hosts:
            key = f"host {host.name}"
            task = self._context.tasks.take(key)
            if task is not None:
                self._take(host, task)
            old = self._context.steady() - self._surveyed_at.get(host.name, float("-inf")) >= SURVEY_SECONDS
            if old and not self._context.tasks.busy(key):
                self._submit(key, host)

    def awaits_first_answers(self) -> bool:
        """Tell whether a host that was never seen may still answer in time: a job may ask for it first."""
        unseen = [host for host in self._context.engines.hosts if host.name not in self._reports]
        return bool(unseen) and self._context.lasting("first answers").seconds < FIRST_ANSWER_SECONDS

    def is_fresh(self, host: str) -> bool:
        """Tell whether the report of a host is new enough to choose a GPU by it."""
        return self._context.steady() - self._surveyed_at.get(host, float("-inf")) < SURVEY_SECONDS

    def forget(self, host: str) -> None:
        """Have a host surveyed again before anything is placed there."""
        self._surveyed_at.pop(host, None)

    def away(self, host: str) -> Lasting | None:
        """Return how long a host has not answered; None if it answers. One that is no longer listed is away, too."""
        listed = host in {each.name for each in self._context.engines.hosts}
        report = self._reports.get(host)
        if listed and (report is None or not report.away):
            return None
        return self._context.lasting(("host away", host))

    def answers(self) -> dict[str, bool]:
        """Return whether each host answered when it was last asked; without those that were not asked for a while."""
        now = self._context.steady()
        return {
            name: not self._reports[name].away for name, at in self._surveyed_at.items() if now - at < RECENT_SECONDS
        }

    def partitions(self, host: str) -> tuple[Partition, ...]:
        """Return the partitions of a site by its last survey; none where it is not known, or is no site."""
        report = self._reports.get(host)
        return report.partitions if report else ()

    def views(self, load: dict[str, int]) -> list[HostView]:
        return [self._view(host, load.get(host.name, 0)) for host in self._context.engines.hosts]

    def _submit(self, key: str, host: Host) -> None:
        self._context.tasks.submit(key, host.name, partial(self._context.engines.survey, host))

    def _take(self, host: Host, task: Task) -> None:
        error = task.future.exception()
        # A host that could not be surveyed cannot be used now, whatever the error.
        problem = str(error) if isinstance(error, (EngineError, HostError)) else f"the check of it failed: {error!r}"
        report: Report = Report(host, away=problem) if error else task.future.result()
        self._reports[host.name] = report
        self._surveyed_at[host.name] = self._context.steady()
        if report.away:
            self._context.lasting(("host away", host.name))
        else:
            self._context.over(("host away", host.name))
            self._gpus[host.name] = report.gpus
            keep_sites(self._context.store, [report], at=self._context.now())

    def _view(self, host: Host, load: int) -> HostView:
        report = self._reports.get(host.name)
        # An unreachable host still has the GPUs it had before.
        known = replace(report or Report(host, away=UNSEEN), gpus=self._gpus.get(host.name, ()))
        return replace(view_of(known), load=load, trouble=trouble(report))


def view_of(report: Report) -> HostView:
    """Return a host as the scheduler sees it."""
    slots = tuple(Slot(state.gpu, _foreign_process(state)) for state in report.gpus)
    return HostView(report.host, slots, trouble(report))


def _foreign_process(state: GpuState) -> str:
    """Return what uses a GPU: processes, or the job of a container. It counts only where this store has no lease."""
    return ", ".join([*state.foreign_processes, *([f"job {state.job}"] if state.job else [])])


def trouble(report: Report | None) -> str:
    """Return why a host cannot be used now; empty if it can."""
    if report is None:
        return UNSEEN
    if report.refused:
        return f"refuses us ({_without_host(report, report.away)})"
    if report.away:
        return f"is unreachable ({_without_host(report, report.away)})"
    if not report.engine:
        return f"has no engine that answers ({_without_host(report, report.engine_trouble or 'none is installed')})"
    full = [disk for disk in report.disks if disk.free < MIN_FREE_DISK]
    return f"has a full disk ({full[0].free >> 20} MiB free on {full[0].mount})" if full else ""


def _without_host(report: Report, text: str) -> str:
    return text.removeprefix(f"{report.host.name}: ")[:160]
