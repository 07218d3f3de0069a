"""Shows, for `rung check`, how a job would be submitted to each site of the list that takes it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from rung.jobs.model.host import Host
from rung.jobs.site.options import chosen_options
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.launch.engine_fit import why_unfit
from rung.runner.launch.site_request import asked_of


def site_lines(spec: JobSpec, hosts: Sequence[Host]) -> Iterator[str]:
    """Yield one line for each site: the options that come from its settings and from the job file, or why not."""
    for host in hosts:
        if host.site is None:
            continue
        why = why_unfit(spec, host)
        if why is None:
            options = shlex.join(chosen_options(host.site, asked_of(spec)))
            yield f"at {host.name} it would start as {host.site.start}, with sbatch {options}"
        else:
            yield f"it does not go to {host.name}, which {why}"
