"""Says what one job avoids, of what is set aside: GPUs that Rung leases, and nodes that a site is told to exclude."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rung.jobs.job import Attempt, Job
from rung.recovery.nodes.bad_places import BadPlace, find_bad_places

# A command line holds no list of any length; those that failed last are the ones to exclude.
MOST_NODES = 50
# A site reports the names, and they go into a command: nothing that could be an option, or a list of names.
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def gpus_to_use_last(job_id: str, bad: Iterable[BadPlace]) -> frozenset[tuple[str, str]]:
    """Return the GPUs, as host and UUID, where a job has died lately: it takes one of them if no other is free."""
    return frozenset((each.place.host, each.place.gpu) for each in bad if each.place.gpu and job_id in each.avoided_by)


def nodes_to_exclude(
    job: Job,
    attempts_of_all_jobs: Iterable[Attempt],
    now: float,
    *,
    site: str | None = None,
    cleared: Mapping[str, float] | None = None,
) -> tuple[str, ...]:
    """Return the nodes that a site must not choose for a job now, in the order of the alphabet.

    They are those where it died lately, and those that are set aside for all. `site`: the host that stands for it;
    None: of all sites. An exclusion ends with time, so ask anew for each launch.
    """
    bad = [
        each
        for each in find_bad_places(attempts_of_all_jobs, now, cleared)
        if each.place.node and site in (None, each.place.host) and (each.until is not None or job.id in each.avoided_by)
    ]
    newest = sorted(bad, key=lambda each: each.last_at, reverse=True)[:MOST_NODES]
    names = {each.place.node for each in newest if each.place.node}
    return tuple(sorted(name for name in names if NODE_NAME.fullmatch(name)))
