"""Chooses the hosts of a job that runs on several which share a folder. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rung.jobs.model.gpu import Gpu
from rung.runner.placement.places import HostView, WaitingJob

# A host, and what of its GPUs the job could use now, all of one type.
Part = tuple[HostView, tuple[Gpu, ...]]


def sharing(views: Sequence[HostView], nodes: int) -> list[list[HostView]]:
    """Return the hosts that share a folder with so many others of these, by their folder."""
    folders = dict.fromkeys(view.host.shared for view in views if view.host.shared and not view.places)
    groups = [[view for view in views if view.host.shared == folder] for folder in folders]
    return [group for group in groups if len(group) >= nodes]


def choose(job: WaitingJob, choices: Sequence[tuple[int, Sequence[Part]]]) -> list[Part] | None:
    """Return the hosts and GPUs for a job, the leading host first; None: nowhere are enough of them free.

    `choices`: how many GPUs each host is to give, and what it could, for each request and group of hosts, in the order
    of preference. The GPUs of all hosts are of one type, since they share one image. The leading host is the one with
    the files of the job, if it can be.
    """
    for count, parts in choices:
        for kind in dict.fromkeys(gpu.type for _, gpus in parts for gpu in gpus[:1]) if count else ("",):
            able = [(view, gpus[:count]) for view, gpus in parts if not count or _has(gpus, kind, count)]
            if len(able) >= job.nodes:
                able.sort(key=lambda part: (job.takes_last(*part), part[0].host.name != job.near))
                return sorted(able[: job.nodes], key=lambda part: part[0].host.name != job.near)
    return None


def _has(gpus: Sequence[Gpu], kind: str, count: int) -> bool:
    return len(gpus) >= count and gpus[0].type == kind
