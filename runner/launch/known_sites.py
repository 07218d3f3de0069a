"""Keeps what the last survey of each site has shown, and refuses a job that by it no site can ever run.

The controller, `rung hosts` and `rung check` survey the sites. A launch only reads what they have kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from rung.jobs.model.errors import StoreError, UsageError
from rung.jobs.model.host import Host
from rung.jobs.model.paths import HomePaths
from rung.jobs.site.partitions import Partition, why_never
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.hosts.survey import Report
from rung.runner.launch.engine_fit import why_unfit
from rung.runner.launch.site_request import asked_of
from rung.runner.state.home import home_problem
from rung.runner.state.place_rows import KeptSurvey
from rung.runner.state.store import Store

# A cluster is rebuilt now and then. What is older says nothing, and the controller looks for itself.
KEPT_SECONDS = 3600.0
# The same survey is kept again after this.
KEEP_SECONDS = 600.0

# Returns the partitions of a host; none where they are not known, or where it is no site.
Known = Callable[[Host], Sequence[Partition]]


def keep_sites(store: Store, reports: Iterable[Report], *, at: float) -> None:
    """Keep the partitions of all sites that have answered, unless just that was kept a short while ago."""
    kept = store.site_surveys()
    answered = {report.host.name: _data(report) for report in reports if report.host.site is not None and report.engine}
    old = {name: data for name, data in answered.items() if not _is_kept(kept.get(name), data, at)}
    if old:
        with store.transaction():
            for name, data in old.items():
                store.keep_survey(name, data, at=at)


def _data(report: Report) -> dict[str, Any]:
    partitions = [each.to_dict() for each in report.partitions]
    # As it is read again: with lists.
    return dict(json.loads(json.dumps({"address": report.host.address, "partitions": partitions})))


def _partitions(data: Mapping[str, Any]) -> Sequence[Partition]:
    """Return the partitions of a kept survey; none where another Rung has kept it in a form of its own."""
    try:
        return [Partition.from_dict(row) for row in data["partitions"]]
    except (LookupError, TypeError, ValueError):
        return ()


def _is_kept(kept: KeptSurvey | None, data: Mapping[str, Any], at: float) -> bool:
    return kept is not None and kept.data == data and 0 <= at - kept.at < KEEP_SECONDS


def keep_sites_of_home(paths: HomePaths, reports: Iterable[Report], *, at: float) -> None:
    """Keep them in the store of a home, if it has one: whoever only looks at hosts does not need it."""
    if paths.store.exists() and home_problem(paths) is None:
        with suppress(StoreError), closing(Store(paths.store)) as store:
            keep_sites(store, reports, at=at)


def why_nowhere(spec: JobSpec, hosts: Sequence[Host], known: Known) -> str | None:
    """Return why every host that takes the job is a site that can never run it; None: one of them may."""
    able = [host for host in hosts if host.takes(image=spec.image is not None) and why_unfit(spec, host) is None]
    why = {host.name: why_never(host.site, asked_of(spec), known(host)) if host.site else None for host in able}
    return None if not why or None in why.values() else "; ".join(f"{name} {never}" for name, never in why.items())


def refuse_never(spec: JobSpec, hosts: Callable[[], Sequence[Host]], store: Store, now: float) -> None:
    """Refuse a job of which the surveys that were kept show that it can never run."""
    if not spec.is_remote:
        return
    kept = {name: each for name, each in store.site_surveys().items() if 0 <= now - each.at < KEPT_SECONDS}
    if not kept:
        return
    known: Mapping[tuple[str, str], Sequence[Partition]] = {
        (name, each.data.get("address", "")): _partitions(each.data) for name, each in kept.items()
    }
    minutes = int(now - min(each.at for each in kept.values())) // 60
    # Under the same name there may be another cluster now.
    refuse_nowhere(spec, hosts(), lambda host: known.get((host.name, host.address), ()), f"{minutes} min ago")


def refuse_nowhere(spec: JobSpec, hosts: Sequence[Host], known: Known, surveyed: str) -> None:
    """Refuse a job that no site can ever run; `surveyed`: when the sites were looked at."""
    if why := why_nowhere(spec, hosts, known):
        raise UsageError(
            f"{spec.name}: no host of the list can ever run it: {why}; change the job file or the settings of the site "
            f"(surveyed {surveyed}; `rung hosts` looks again)"
        )
