"""Tells which hosts could run a job, and why the others could not. Reads reports; asks no host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rung.jobs.model.engine import PlacedBy
from rung.jobs.model.gpu import Gpu
from rung.jobs.site.partitions import why_never
from rung.jobs.spec.image import for_gpu
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.hosts.survey import Report
from rung.runner.launch.engine_fit import why_unfit
from rung.runner.launch.site_request import asked_of
from rung.runner.placement.host_pool import view_of
from rung.runner.placement.places import GpuKey, HostView, PlacementResult, WaitingJob
from rung.runner.placement.scheduler import place
from rung.runner.placement.several_hosts import sharing
from rung.runner.preflight.check_job import CheckResult
from rung.runner.preflight.several_hosts import meeting_text


def _waiting_job(spec: JobSpec, job_id: str) -> WaitingJob:
    return WaitingJob(job_id, spec.resources.gpu, spec.image, spec.priority, nodes=spec.resources.nodes)


def preview_place(
    spec: JobSpec, job_id: str, views: Sequence[HostView], leases: Mapping[GpuKey, str]
) -> PlacementResult:
    """Return the place that a job would get now if no other job waited."""
    return place([_waiting_job(spec, job_id)], views, leases, _unknown)[0]


def check_fit(spec: JobSpec, reports: Sequence[Report]) -> Iterator[CheckResult]:
    """Yield for every host whether the job could run there; an empty list of hosts is a problem too."""
    pairs = [(report, view_of(report)) for report in reports]
    found = [(view, _why_not(spec, view) or _why_not_by_list(spec, report)) for report, view in pairs]
    good = [view for view, why in found if why is None]
    for view, why in found:
        if why is None:
            yield CheckResult(True, f"host {view.host.name} could run it{_with(spec, view)}")
        else:
            # A host that does not fit is no problem as long as another one does.
            yield CheckResult(bool(good), f"host {view.host.name} could not run it: it {why}", "see `rung hosts`")
    if spec.resources.nodes > 1 and not any(view.places for view in good):
        yield from _together(spec, good)
    if not found:
        yield CheckResult(False, "the list of hosts is empty", "`rung hosts` says where to list one")


def _together(spec: JobSpec, good: Sequence[HostView]) -> Iterator[CheckResult]:
    """Yield which of the hosts that could run the job share a folder, if there are enough of them."""
    nodes = spec.resources.nodes
    for group in (groups := sharing(good, nodes)):
        names = ", ".join(f"{view.host.name} ({view.host.address_for_ranks})" for view in group)
        yield CheckResult(True, f"{nodes} of these hosts can run it together: {names}; {meeting_text()}")
    if good and not groups:
        yield CheckResult(
            False,
            f"no {nodes} of the hosts that could run it now share a folder",
            "see `rung hosts`, and `rung_shared` in the list of hosts",
        )


def _why_not(spec: JobSpec, view: HostView) -> str | None:
    if view.trouble:
        return view.trouble
    if not view.host.engine.takes(image=spec.image is not None):
        return f"takes no job {'with' if spec.image is not None else 'without'} an image"
    if not spec.resources.gpu or view.host.engine.placed_by is PlacedBy.SITE:
        return None
    fitting = _fitting(spec, view)
    if not fitting:
        wanted = " or ".join(request.text for request in spec.resources.gpu)
        has = ", ".join(slot.gpu.type for slot in view.slots) or "no GPU"
        return f"does not have {wanted} (it has {has})"
    image = spec.image or ""
    if all(for_gpu(image, gpu.type) is None for gpu in fitting):
        return f"has {fitting[0].type}, for which the job file names no image"
    return None


def _why_not_by_list(spec: JobSpec, report: Report) -> str | None:
    """Return why a host cannot run the job, as far as the list of hosts and the nodes of a site tell; None: it can."""
    site = report.host.site
    if site is None:
        return why_unfit(spec, report.host)
    return why_unfit(spec, report.host) or why_never(site, asked_of(spec), report.partitions)


def _fitting(spec: JobSpec, view: HostView) -> list[Gpu]:
    requests = [
        request for request in spec.resources.gpu if sum(request.fits(slot.gpu) for slot in view.slots) >= request.count
    ]
    return [slot.gpu for slot in view.slots if any(request.fits(slot.gpu) for request in requests)]


def _with(spec: JobSpec, view: HostView) -> str:
    if view.host.engine.placed_by is PlacedBy.SITE:
        return ", as soon as its queue has a place"
    names = dict.fromkeys(gpu.name for gpu in _fitting(spec, view))
    return f", on {' or '.join(names)}" if names else ", without a GPU"


def _unknown(image: str, gpu: Gpu) -> str | None:
    """Return None: whether an image can run on a GPU is known only after it is fetched."""
    return None
