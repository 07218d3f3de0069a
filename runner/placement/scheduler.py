"""Decides which waiting job gets which GPU, and gives a reason to each job that gets none.

Pure: it asks no host and writes nothing. This machine is a host like the others. Higher priority goes first, then first
come, first served. A job that waits does not block a job that needs something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from rung.jobs.model.gpu import Gpu, Member
from rung.jobs.spec.image import for_gpu
from rung.jobs.spec.resources import GpuRequest
from rung.runner.placement.places import (
    GpuKey,
    HostView,
    MustWait,
    Placed,
    PlacementResult,
    Refused,
    Slot,
    WaitingJob,
)
from rung.runner.placement.several_hosts import Part, choose, sharing

# A reason is one sentence: it names at most this many obstacles.
NAMED = 4
# Returns why an image cannot run on a GPU; None if it can, or if that is not known yet.
WhyIncompatible = Callable[[str, Gpu], str | None]


def place(
    waiting: Sequence[WaitingJob],
    views: Sequence[HostView],
    leases: Mapping[GpuKey, str],
    incompatible: WhyIncompatible,
) -> list[PlacementResult]:
    """Return a result for every waiting job (oldest first); `leases` is the job that has each GPU."""
    allocation = _Allocation(views, dict(leases), incompatible)
    order = sorted(range(len(waiting)), key=lambda index: (-waiting[index].priority, index))
    results = {index: allocation.result(waiting[index]) for index in order}
    return [results[index] for index in range(len(waiting))]


def candidates(job: WaitingJob, views: Sequence[HostView], incompatible: WhyIncompatible) -> list[str]:
    """Return the usable hosts that have the GPUs a job requests, free or not."""
    allocation = _Allocation(views, {}, incompatible)
    able = [view for view in views if allocation.fits(job, view)]
    if job.nodes > 1:
        able = [view for view in able if view.places] + [each for group in sharing(able, job.nodes) for each in group]
    return [view.host.name for view in able]


class _Allocation:
    """What is still free while the jobs are placed one after the other."""

    def __init__(self, views: Sequence[HostView], taken: dict[GpuKey, str], incompatible: WhyIncompatible) -> None:
        self._views, self._taken, self._incompatible = views, taken, incompatible
        self._load = {view.host.name: view.load for view in views}
        # GPUs reserved for a job that needs several, so that smaller jobs cannot overtake it for ever.
        self._reserved: dict[GpuKey, WaitingJob] = {}

    def result(self, job: WaitingJob) -> PlacementResult:
        placed = self._place_of(job)
        if placed is not None:
            for place in placed.places:
                self._taken |= dict.fromkeys(((place.host, gpu.uuid) for gpu in place.gpus), job.job)
                self._load[place.host] += 1
            return placed
        if (refusal := self._refusal(job)) is not None:
            return Refused(job.job, refusal)
        self._reserve(job)
        return MustWait(job.job, self._reason(job))

    def fits(self, job: WaitingJob, view: HostView) -> bool:
        unlimited = not job.requests or view.places
        able = unlimited or any(self._could_ever(job, request, view) for request in job.requests)
        return able and self._is_usable(job, view)

    # Free GPUs

    def _place_of(self, job: WaitingJob) -> Placed | None:
        if job.nodes > 1:
            return self._on_several(job) or self._at_a_site(job)
        return self._with_gpus(job) if job.requests else self._without_gpus(job)

    def _on_several(self, job: WaitingJob) -> Placed | None:
        """Return a place on several hosts that share a folder, with GPUs of one type on all of them."""
        groups = sharing(self._usable(job), job.nodes)
        wanted = [(request, views) for request in job.requests or (None,) for views in groups]
        found = choose(job, [(each.count if each else 0, self._parts(job, each, views)) for each, views in wanted])
        if found is None:
            return None
        (view, gpus), *others = found
        image = job.image_for(gpus[0].type if gpus else "cpu")
        if image is None:
            return None
        members = tuple(Member(other.host.name, theirs) for other, theirs in others)
        return Placed(job.job, view.host.name, gpus, image, view.host.engine, members)

    def _parts(self, job: WaitingJob, request: GpuRequest | None, views: Sequence[HostView]) -> list[Part]:
        """Return what each host could give now, those with the fewest attempts first."""
        views = sorted(views, key=lambda view: self._load[view.host.name])
        return [(view, tuple(self._free(job, request, view)) if request else ()) for view in views]

    def _with_gpus(self, job: WaitingJob) -> Placed | None:
        choices = [
            (order, view, tuple(free[: request.count]), len(free))
            for order, request in enumerate(job.requests)
            for view in self._usable(job)
            if not view.places and len(free := self._free(job, request, view)) >= request.count
        ]
        if not choices:
            return self._at_a_site(job)
        _, view, gpus, _ = min(
            choices, key=lambda c: (job.takes_last(c[1], c[2]), c[0], c[1].host.name != job.near, -c[3])
        )
        image = job.image_for(gpus[0].type)
        assert image is not None or job.image is None, "a GPU without an image is not free for the job"
        return Placed(job.job, view.host.name, gpus, image, view.host.engine)

    def _at_a_site(self, job: WaitingJob) -> Placed | None:
        """Return a place at a site, which has a queue of its own and chooses the GPUs by itself."""
        sites = [view for view in self._usable(job) if view.places]
        images = [job.image_for(request.type or "") for request in job.requests] or [job.image_for("cpu")]
        if not sites or (job.image is not None and None in images):
            return None
        view = min(sites, key=lambda view: (view.host.name != job.near, self._load[view.host.name]))
        return Placed(job.job, view.host.name, (), images[0], view.host.engine)

    def _without_gpus(self, job: WaitingJob) -> Placed | None:
        views = [view for view in self._usable(job) if not self._is_full(view)]
        image = job.image_for("cpu")
        if not views or (image is None and job.image is not None):
            return None
        view = min(views, key=lambda view: (view.host.name != job.near, self._load[view.host.name]))
        return Placed(job.job, view.host.name, (), image, view.host.engine)

    def _usable(self, job: WaitingJob) -> list[HostView]:
        return [view for view in self._views if self._is_usable(job, view)]

    def _is_usable(self, job: WaitingJob, view: HostView) -> bool:
        return not view.trouble and view.host.name not in job.avoid and view.takes(job)

    def _is_full(self, view: HostView) -> bool:
        return view.limit is not None and self._load[view.host.name] >= view.limit

    def _free(self, job: WaitingJob, request: GpuRequest, view: HostView) -> list[Gpu]:
        """Return the GPUs of a host that the job could use now, all of one type, because they share one image."""
        free = [slot.gpu for slot in view.slots if request.fits(slot.gpu) and self._obstacle(job, slot, view) is None]
        kinds = Counter(gpu.type for gpu in free)
        first = Counter(gpu.type for gpu in free if not job.takes_last(view, (gpu,)))
        most = max(kinds, key=lambda kind: (first[kind] >= request.count, kinds[kind]), default="")
        return sorted((gpu for gpu in free if gpu.type == most), key=lambda gpu: job.takes_last(view, (gpu,)))

    # Obstacles

    def _obstacle(self, job: WaitingJob, slot: Slot, view: HostView) -> str | None:
        """Return why a job cannot use this GPU now, or None."""
        if (unfit := self._unfit(job, slot.gpu)) is not None:
            return unfit
        key = (view.host.name, slot.gpu.uuid)
        if slot.set_aside or key in job.own:
            return slot.set_aside or None
        if key in self._taken:
            return f"is in use by {self._taken[key]}"
        if slot.foreign_process:
            return f"is in use by someone else ({slot.foreign_process})"
        if key in self._reserved and self._reserved[key] is not job:
            other = self._reserved[key]
            return f"is kept for {other.job}, which waits for {other.requests[0].count}"
        return None

    def _unfit(self, job: WaitingJob, gpu: Gpu) -> str | None:
        if job.image is None:
            return None
        image = for_gpu(job.image, gpu.type)
        if image is None:
            return f"cannot be used: the job file names no image for {gpu.type}"
        why = self._incompatible(image, gpu)
        return f"cannot run the image: {why}" if why else None

    def _refusal(self, job: WaitingJob) -> str | None:
        """Return why the job can never run on these hosts; None as long as one of them was never surveyed."""
        if any(view.trouble and not view.slots for view in self._views):
            return None
        gpus = [slot.gpu for view in self._views for slot in view.slots]
        fitting = [gpu for gpu in gpus if any(request.fits(gpu) for request in job.requests)]
        unfit = [self._unfit(job, gpu) for gpu in fitting]
        if not fitting or None in unfit:
            return None
        named = dict.fromkeys(f"{gpu.name} {why}" for gpu, why in zip(fitting, unfit, strict=True))
        return "; ".join(list(named)[:NAMED])

    def _reserve(self, job: WaitingJob) -> None:
        """Reserve free GPUs for a job that needs several, on the hosts where the fewest are missing."""
        for request in job.requests:
            able = [view for view in self._usable(job) if self._could_ever(job, request, view)]
            groups = [[view] for view in able] if job.nodes == 1 else sharing(able, job.nodes)
            if request.count * job.nodes > 1 and groups:
                free = [self._most_free(job, request, views) for views in groups]
                most = max(len(keys) for keys in free)
                self._reserved |= dict.fromkeys(next(keys for keys in free if len(keys) == most), job)
                return

    def _most_free(self, job: WaitingJob, request: GpuRequest, views: Sequence[HostView]) -> list[GpuKey]:
        """Return the free GPUs of as many hosts as the job needs, those with the most first."""
        free = [[(view.host.name, gpu.uuid) for gpu in self._free(job, request, view)] for view in views]
        return [key for keys in sorted(free, key=len, reverse=True)[: job.nodes] for key in keys]

    def _could_ever(self, job: WaitingJob, request: GpuRequest, view: HostView) -> bool:
        known = [slot for slot in view.slots if request.fits(slot.gpu) and not slot.set_aside]
        fits = [slot for slot in known if self._unfit(job, slot.gpu) is None]
        host = view.host.name
        return sum(not slot.foreign_process or (host, slot.gpu.uuid) in self._taken for slot in fits) >= request.count

    def _reason(self, job: WaitingJob) -> str:
        wanted = " or ".join(request.text for request in job.requests) or ("a host" if job.image else "a slot")
        if job.nodes > 1:
            wanted = f"{wanted} on each of {job.nodes} hosts" if job.requests else f"{job.nodes} hosts"
        obstacles = list(dict.fromkeys(what for view in self._views for what in self._obstacles(job, view)))
        more = f"; and {len(obstacles) - NAMED} more" if len(obstacles) > NAMED else ""
        return f"waits for {wanted}: {'; '.join(obstacles[:NAMED]) or self._none_found()}{more}"

    def _none_found(self) -> str:
        if len(self._views) == 1 and not self._views[0].trouble:
            return f"{self._views[0].host.name} has none"
        return "the list of hosts is empty" if not self._views else "no host that answers has one"

    def _obstacles(self, job: WaitingJob, view: HostView) -> Iterator[str]:
        """Yield the obstacles on one host; none if it has no GPU that the job requests."""
        name = view.host.name
        if not view.takes(job):
            yield f"{name} takes no job {'with' if job.image is not None else 'without'} an image"
            return
        if view.trouble:
            if view.may_have(job.requests):
                yield f"{name} {view.trouble}"
            return
        fitting = [slot for slot in view.slots if any(request.fits(slot.gpu) for request in job.requests)]
        if name in job.avoid and (fitting or not job.requests):
            yield f"{name} {job.avoid[name]}"
            return
        if not job.requests and self._is_full(view):
            yield f"{name} runs {self._load[name]} of at most {view.limit} without a GPU"
            return
        slots = [(slot, self._obstacle(job, slot, view)) for slot in fitting]
        for slot, why in slots:
            which = f"{name}'s only one" if len(fitting) == 1 else f"{name}'s {slot.gpu.type} {slot.gpu.index}"
            if why is not None:
                yield f"{which} {why}"
        free = sum(why is None for _, why in slots)
        if free:
            yield f"{name} has {free} free of {len(fitting)}"
