"""Hosts and waiting jobs as the scheduler sees them, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rung.jobs.model.engine import EngineKind, PlacedBy
from rung.jobs.model.gpu import Gpu, Member
from rung.jobs.model.host import Host
from rung.jobs.spec.image import for_gpu
from rung.jobs.spec.resources import GpuRequest

# A GPU: the name of its host and its UUID, which the host itself reports.
GpuKey = tuple[str, str]


@dataclass(frozen=True)
class Slot:
    """One GPU of a host, and what uses it without a lease of this store (a process, or a job of another store)."""

    gpu: Gpu
    foreign_process: str = ""
    # Why no job gets it now, after faults of several: `is set aside until 14:20 ...`.
    set_aside: str = ""


@dataclass(frozen=True)
class HostView:
    """A host as the scheduler sees it. `trouble` is why nothing can go there now: `is unreachable`."""

    host: Host
    slots: tuple[Slot, ...] = ()
    trouble: str = ""
    # The number of attempts that run there now, with and without a GPU.
    load: int = 0
    # The most jobs without a GPU that run there at once; None: no limit. Where there is one, `load` counts only them.
    limit: int | None = None

    @property
    def places(self) -> bool:
        """Tell whether the host chooses GPUs by itself."""
        return self.host.engine.placed_by is PlacedBy.SITE

    def takes(self, job: WaitingJob) -> bool:
        return self.host.takes(image=job.image is not None)

    def may_have(self, requests: Sequence[GpuRequest]) -> bool:
        """Tell whether a host that cannot be used now may have the GPUs that are requested."""
        if not requests:
            return True
        if self.slots:
            return any(request.fits(slot.gpu) for request in requests for slot in self.slots)
        return any(each.type is None or self.host.should_have(each.type) or not self.host.groups for each in requests)


@dataclass(frozen=True)
class WaitingJob:
    """A job that waits for a host. Without an image it is a process, which any GPU can run."""

    job: str
    requests: tuple[GpuRequest, ...]
    image: str | Mapping[str, str] | None
    priority: int = 0
    # The host that has its files, and the hosts to avoid, each with the reason: `is avoided after 2 faults`.
    near: str | None = None
    avoid: Mapping[str, str] = field(default_factory=dict)
    # GPUs that it takes only if no other is free, because it died there; and those that it has leased itself.
    use_last: frozenset[GpuKey] = frozenset()
    own: frozenset[GpuKey] = frozenset()
    # On how many hosts that share a folder it runs at once, with these GPUs on each.
    nodes: int = 1

    def image_for(self, kind: str) -> str | None:
        return for_gpu(self.image, kind) if self.image is not None else None

    def takes_last(self, view: HostView, gpus: Sequence[Gpu]) -> bool:
        return any((view.host.name, gpu.uuid) in self.use_last for gpu in gpus)


@dataclass(frozen=True)
class Placed:
    job: str
    host: str
    gpus: tuple[Gpu, ...]
    image: str | None
    engine: EngineKind
    # The other hosts, for a job on several.
    members: tuple[Member, ...] = ()

    @property
    def places(self) -> tuple[Member, ...]:
        """Return all its hosts, the leading one first."""
        return (Member(self.host, self.gpus), *self.members)


@dataclass(frozen=True)
class MustWait:
    job: str
    reason: str


@dataclass(frozen=True)
class Refused:
    """No GPU that it accepts can ever run its image, or no site can ever run the job."""

    job: str
    reason: str


PlacementResult = Placed | MustWait | Refused
