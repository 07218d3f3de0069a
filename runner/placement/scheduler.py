"""Owns who gets which GPU: from the jobs that wait and the hosts as they were last seen, a place or a reason for each.

Pure: it asks no host and writes nothing. Higher priority first, then first come, first served; a job that waits holds
back nobody who wants something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import Host
from rung.jobs.spec.gpu_request import GpuRequest
from rung.jobs.spec.image import for_gpu

# A reason is one sentence: this many of the things that are in the way are named.
NAMED = 4


@dataclass(frozen=True)
class Slot:
    """One GPU of a host, and what is on it that is not leased by us (a process, or a job of another store)."""

    gpu: Gpu
    stranger: str = ""


@dataclass(frozen=True)
class HostView:
    """A host as the placing sees it. `trouble` says why nothing can go there now: `is unreachable`."""

    host: Host
    slots: tuple[Slot, ...] = ()
    trouble: str = ""
    # Attempts that run there now, with and without a GPU.
    load: int = 0


@dataclass(frozen=True)
class Waiting:
    """A job that waits for a place."""

    job: str
    wishes: tuple[GpuRequest, ...]
    image: str | Mapping[str, str]
    priority: int = 0
    # Where its files are already, and where it must not go, each with why: `is avoided after 2 faults`.
    near: str | None = None
    avoid: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Placed:
    job: str
    host: str
    gpus: tuple[Gpu, ...]
    image: str


@dataclass(frozen=True)
class Waits:
    job: str
    reason: str


@dataclass(frozen=True)
class Refused:
    """No GPU that the job accepts can ever run its image."""

    job: str
    reason: str


Answer = Placed | Waits | Refused
# Says why an image cannot run on a GPU; None where it can, or where that is not known yet.
Misfit = Callable[[str, Gpu], str | None]


def place(
    waiting: Sequence[Waiting], sites: Sequence[HostView], leases: Mapping[str, str], misfit: Misfit
) -> list[Answer]:
    """Answer every waiting job (first come first), given who leases which GPU (its UUID) already."""
    floor = _Allocation(sites, dict(leases), misfit)
    order = sorted(range(len(waiting)), key=lambda index: (-waiting[index].priority, index))
    answers = {index: floor.answer(waiting[index]) for index in order}
    return [answers[index] for index in range(len(waiting))]


def could_go(job: Waiting, sites: Sequence[HostView], misfit: Misfit) -> list[str]:
    """Return the hosts that have what a job wishes and can be used, whoever uses it now."""
    floor = _Allocation(sites, {}, misfit)
    return [site.host.name for site in sites if floor.fits(job, site)]


class _Allocation:
    """What is still free while one job after the other gets its answer."""

    def __init__(self, sites: Sequence[HostView], taken: dict[str, str], misfit: Misfit) -> None:
        self._sites, self._taken, self._misfit = sites, taken, misfit
        self._load = {site.host.name: site.load for site in sites}
        # GPUs kept for a job that gathers several of them, so that smaller ones cannot overtake it for ever.
        self._kept: dict[str, Waiting] = {}

    def answer(self, job: Waiting) -> Answer:
        placed = self._with_gpus(job) if job.wishes else self._without(job)
        if placed is not None:
            self._taken |= dict.fromkeys((gpu.uuid for gpu in placed.gpus), job.job)
            self._load[placed.host] += 1
            return placed
        refusal = self._refusal(job)
        if refusal is not None:
            return Refused(job.job, refusal)
        self._keep(job)
        return Waits(job.job, self._reason(job))

    def fits(self, job: Waiting, site: HostView) -> bool:
        usable = not site.trouble and site.host.name not in job.avoid
        return usable and (not job.wishes or any(self._could_ever(job, wish, site) for wish in job.wishes))

    # A place

    def _with_gpus(self, job: Waiting) -> Placed | None:
        for wish in job.wishes:
            choices = [(site, self._free(job, wish, site)) for site in self._open(job)]
            enough = [(site, free) for site, free in choices if len(free) >= wish.count]
            if enough:
                site, free = min(enough, key=lambda choice: (choice[0].host.name != job.near, -len(choice[1])))
                image = for_gpu(job.image, free[0].type)
                assert image is not None, "a GPU without an image is not free for the job"
                return Placed(job.job, site.host.name, tuple(free[: wish.count]), image)
        return None

    def _without(self, job: Waiting) -> Placed | None:
        sites = self._open(job)
        image = for_gpu(job.image, "cpu")
        if not sites or image is None:
            return None
        site = min(sites, key=lambda site: (site.host.name != job.near, self._load[site.host.name]))
        return Placed(job.job, site.host.name, (), image)

    def _open(self, job: Waiting) -> list[HostView]:
        return [site for site in self._sites if not site.trouble and site.host.name not in job.avoid]

    def _free(self, job: Waiting, wish: GpuRequest, site: HostView) -> list[Gpu]:
        """Return the GPUs of a host that the job could have now, all of one type so that one image serves them."""
        free = [slot.gpu for slot in site.slots if wish.fits(slot.gpu) and self._in_the_way(job, slot) is None]
        most = max((gpu.type for gpu in free), key=lambda kind: sum(g.type == kind for g in free), default="")
        return [gpu for gpu in free if gpu.type == most]

    # What is in the way

    def _in_the_way(self, job: Waiting, slot: Slot) -> str | None:
        """Say why a job cannot have a GPU of the kind it wishes."""
        unfit = self._unfit(job, slot.gpu)
        if unfit is not None:
            return unfit
        if slot.gpu.uuid in self._taken:
            return f"is in use by {self._taken[slot.gpu.uuid]}"
        if slot.stranger:
            return f"is in use by someone else ({slot.stranger})"
        if slot.gpu.uuid in self._kept:
            other = self._kept[slot.gpu.uuid]
            return f"is kept for {other.job}, which waits for {other.wishes[0].count}"
        return None

    def _unfit(self, job: Waiting, gpu: Gpu) -> str | None:
        image = for_gpu(job.image, gpu.type)
        if image is None:
            return f"cannot be used: the job file names no image for {gpu.type}"
        why = self._misfit(image, gpu)
        return f"cannot run the image: {why}" if why else None

    def _refusal(self, job: Waiting) -> str | None:
        """Say why the job can never run on these hosts; None while one of them has never been seen."""
        if any(site.trouble and not site.slots for site in self._sites):
            return None
        fitting = [slot.gpu for site in self._sites for slot in site.slots if any(w.fits(slot.gpu) for w in job.wishes)]
        unfit = [self._unfit(job, gpu) for gpu in fitting]
        if not fitting or None in unfit:
            return None
        named = dict.fromkeys(f"{gpu.name} {why}" for gpu, why in zip(fitting, unfit, strict=True))
        return "; ".join(list(named)[:NAMED])

    def _keep(self, job: Waiting) -> None:
        """Keep free GPUs for a job that needs several, on the host where the fewest are missing."""
        for wish in job.wishes:
            able = [site for site in self._open(job) if self._could_ever(job, wish, site)]
            if wish.count > 1 and able:
                best = max(able, key=lambda site: len(self._free(job, wish, site)))
                self._kept |= dict.fromkeys((gpu.uuid for gpu in self._free(job, wish, best)), job)
                return

    def _could_ever(self, job: Waiting, wish: GpuRequest, site: HostView) -> bool:
        fits = [slot for slot in site.slots if wish.fits(slot.gpu) and self._unfit(job, slot.gpu) is None]
        return sum(not slot.stranger or slot.gpu.uuid in self._taken for slot in fits) >= wish.count

    def _reason(self, job: Waiting) -> str:
        wanted = " or ".join(wish.text for wish in job.wishes) or "a host"
        blocked = list(dict.fromkeys(what for site in self._sites for what in self._blocked(job, site)))
        more = f"; and {len(blocked) - NAMED} more" if len(blocked) > NAMED else ""
        return f"waits for {wanted}: {'; '.join(blocked[:NAMED]) or self._nothing(job)}{more}"

    def _nothing(self, job: Waiting) -> str:
        return "the list of hosts is empty" if not self._sites else "no host that answers has one"

    def _blocked(self, job: Waiting, site: HostView) -> Iterator[str]:
        """Say what is in the way on one host; nothing where it has nothing that the job wishes."""
        name = site.host.name
        if site.trouble:
            if _may_have(site, job):
                yield f"{name} {site.trouble}"
            return
        fitting = [slot for slot in site.slots if any(wish.fits(slot.gpu) for wish in job.wishes)]
        if name in job.avoid and (fitting or not job.wishes):
            yield f"{name} {job.avoid[name]}"
            return
        ways = [(slot, self._in_the_way(job, slot)) for slot in fitting]
        for slot, why in ways:
            which = f"{name}'s only one" if len(fitting) == 1 else f"{name}'s {slot.gpu.type} {slot.gpu.index}"
            if why is not None:
                yield f"{which} {why}"
        free = sum(why is None for _, why in ways)
        if free:
            yield f"{name} has {free} free of {len(fitting)}"


def _may_have(site: HostView, job: Waiting) -> bool:
    """Tell whether a host that cannot be used now could have what the job wishes, as far as anybody knows."""
    if not job.wishes:
        return True
    known = any(wish.fits(slot.gpu) for wish in job.wishes for slot in site.slots)
    if site.slots:
        return known
    return any(wish.type is None or site.host.should_have(wish.type) or not site.host.groups for wish in job.wishes)
