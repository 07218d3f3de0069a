"""Tells what a job file asks of a site with a queue of its own. Pure."""

from __future__ import annotations

from rung.jobs.site.job_section import SlurmSection
from rung.jobs.site.settings import Asked
from rung.jobs.spec.fields import parse_size
from rung.jobs.spec.job_spec import JobSpec


def asked_of(spec: JobSpec) -> Asked:
    """Return what the job asks for. Of several requests for GPUs the first one counts: a site has no second choice."""
    resources, section = spec.resources, spec.slurm or SlurmSection()
    request = resources.gpu[0] if resources.gpu else None
    return Asked(
        time=resources.time,
        nodes=resources.nodes,
        gpus=request.count if request else 0,
        gpu=request.type if request else None,
        cpus=resources.cpus,
        memory=parse_size(resources.memory) if resources.memory else None,
        partition=section.partition,
        account=section.account,
        qos=section.qos,
        options=section.options,
    )
