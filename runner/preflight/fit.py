"""Owns saying which hosts a job would fit, and why not the others. Reads reports; asks no host and places nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rung.jobs.model.gpu import Gpu
from rung.jobs.spec.image import for_gpu
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.hosts.survey import Report
from rung.runner.placement.host_pool import site_of
from rung.runner.placement.scheduler import Answer, HostView, Waiting, place
from rung.runner.preflight.check_job import CheckResult


def asked(spec: JobSpec, job_id: str) -> Waiting:
    assert spec.image is not None, "only a job with an image goes to a host"
    return Waiting(job_id, spec.resources.gpu, spec.image, spec.priority)


def would_get(spec: JobSpec, job_id: str, reports: Sequence[Report], leases: Mapping[str, str]) -> Answer:
    """Return the place that a job would get now if nobody else waited."""
    return place([asked(spec, job_id)], [site_of(report) for report in reports], leases, _unknown)[0]


def check_places(spec: JobSpec, reports: Sequence[Report]) -> Iterator[CheckResult]:
    """Say of every host whether the job could run there; without any, that is a finding of its own."""
    sites = [site_of(report) for report in reports]
    good = [site for site in sites if _why_not(spec, site) is None]
    for site in sites:
        why = _why_not(spec, site)
        if why is None:
            yield CheckResult(True, f"host {site.host.name} could run it{_with(spec, site)}")
        else:
            # One host that does not fit is no fault while another one does.
            yield CheckResult(bool(good), f"host {site.host.name} could not run it: it {why}", "see `rung hosts`")
    if not sites:
        yield CheckResult(False, "the list of hosts is empty", "`rung hosts` says where to list one")


def _why_not(spec: JobSpec, site: HostView) -> str | None:
    if site.trouble:
        return site.trouble
    if not spec.resources.gpu:
        return None
    fitting = _fitting(spec, site)
    if not fitting:
        wanted = " or ".join(wish.text for wish in spec.resources.gpu)
        has = ", ".join(slot.gpu.type for slot in site.slots) or "no GPU"
        return f"does not have {wanted} (it has {has})"
    image = spec.image or ""
    if all(for_gpu(image, gpu.type) is None for gpu in fitting):
        return f"has {fitting[0].type}, for which the job file names no image"
    return None


def _fitting(spec: JobSpec, site: HostView) -> list[Gpu]:
    wishes = [wish for wish in spec.resources.gpu if sum(wish.fits(slot.gpu) for slot in site.slots) >= wish.count]
    return [slot.gpu for slot in site.slots if any(wish.fits(slot.gpu) for wish in wishes)]


def _with(spec: JobSpec, site: HostView) -> str:
    names = dict.fromkeys(gpu.name for gpu in _fitting(spec, site))
    return f", on {' or '.join(names)}" if names else ", without a GPU"


def _unknown(image: str, gpu: Gpu) -> str | None:
    """Whether an image can run on a GPU is asked of the image when it is fetched."""
    return None
