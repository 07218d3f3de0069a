"""Tells what a job asks for that a host cannot do, so that it is refused when it is submitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rung.jobs.model.engine import Ask, PlacedBy
from rung.jobs.model.errors import UsageError
from rung.jobs.model.host import Host
from rung.jobs.site.starting import why_not
from rung.jobs.spec.image import for_gpu
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.resources import GpuRequest, Resources


def _has_traits(request: GpuRequest) -> bool:
    return request.type is None or request.capability is not None or request.memory is not None


# Whether a job file asks for each of these. What it only repeats of the defaults is not asked for.
ASKED: Mapping[Ask, Callable[[JobSpec], bool]] = {
    Ask.VOLUMES: lambda spec: bool(spec.volumes),
    Ask.NO_NETWORK: lambda spec: spec.network == "none",
    Ask.PIDS: lambda spec: spec.resources.pids != Resources().pids,
    # Where a site chooses the GPUs, the first request counts.
    Ask.GPU_TRAITS: lambda spec: any(_has_traits(request) for request in spec.resources.gpu[:1]),
    Ask.TIME: lambda spec: spec.resources.time is not None,
    Ask.NODES: lambda spec: spec.resources.nodes > 1,
    Ask.SLURM: lambda spec: spec.slurm is not None,
}


# What would make a host able to do it.
ADVICE: Mapping[Ask, str] = {
    Ask.NODES: " (hosts that share a file system can, with an image: `rung_shared` in the list of hosts; a Slurm site "
    "can, too)"
}


def too_much(spec: JobSpec, host: Host) -> list[Ask]:
    """Return what the job asks for that the host cannot do."""
    return [ask for ask, is_asked in ASKED.items() if is_asked(spec) and ask not in host.can_do]


def why_unfit(spec: JobSpec, host: Host) -> str | None:
    """Return why the job can never run on a host; None: as far as its job file tells, it can."""
    if beyond := too_much(spec, host):
        return f"cannot do {beyond[0]}"
    if host.site is None:
        together = spec.resources.nodes > 1 and host.engine.placed_by is PlacedBy.RUNG
        return _why_not_on_several(spec, host) if together else None
    image = _image_at_site(spec)
    if spec.image is not None and image is None:
        return "gets the first GPU that the job accepts, and the map of images has none for it"
    return why_not(host.site, image)


def _why_not_on_several(spec: JobSpec, host: Host) -> str | None:
    """Return why a job cannot run on this host together with those that share its folder; None: it can."""
    if not host.takes(image=spec.image is not None):
        return "runs a job on several hosts only in containers: name an image, or take resources.nodes out"
    if len(host.shares_with) + 1 < spec.resources.nodes:
        shares = f"shares its folder with {len(host.shares_with)} other host{'s' if host.shares_with[1:] else ''}"
        return f"{shares}, and the job asks for {spec.resources.nodes} nodes"
    if spec.ranks is None:
        return "starts a job on several hosts only with `ranks`, so that they find each other"
    if spec.network == "none":
        return "cannot run it on several hosts with `network: none`"
    folder = spec.checkpoint.dir
    return f"cannot tell whether {folder} is shared: give a relative checkpoint.dir" if folder.startswith("/") else None


def _image_at_site(spec: JobSpec) -> str | None:
    kinds = [request.type or "" for request in spec.resources.gpu]
    return None if spec.image is None else for_gpu(spec.image, kinds[0] if kinds else "cpu")


def refuse_too_much(spec: JobSpec, hosts: Sequence[Host]) -> None:
    """Refuse a job that asks for more than any of these hosts can do."""
    unfit = [(host, why) for host in hosts if (why := why_unfit(spec, host))]
    if not unfit or len(unfit) < len(hosts):
        return
    beyond = [too_much(spec, host) for host in hosts]
    if not spec.is_remote:
        raise UsageError(
            f"{spec.name}: {beyond[0][0]} needs an image: a job without one runs as a process on this machine; "
            "name an image, or take it out of the job file"
        )
    if all(beyond):
        how = ADVICE.get(beyond[0][0], "")
        raise UsageError(
            f"{spec.name}: {beyond[0][0]}: no host of the list can do that{how}; take it out of the job file"
        )
    host, why = next(found for found, asked in zip(unfit, beyond, strict=True) if not asked)
    raise UsageError(f"{spec.name}: no host of the list takes it: {host.name} {why}")
