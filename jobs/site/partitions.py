"""Tells what the partitions of a site can never give to a job, by what a survey of the site has found. Pure.

It refuses only what no free node and no patience can change; whatever is doubtful is left to the cluster itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rung.jobs.site.settings import Asked, Site
from rung.jobs.site.times import text_of
from rung.jobs.site.words import option_name

# GPUs without a type have this name.
ANY_GPU = "gpu"
NAMES = "gpu_names of the site gives the cluster's names for types"
QOS = "or name a QOS that allows more"


@dataclass(frozen=True)
class Nodes:
    """Nodes of a partition that are alike: how many, the GPUs of each by type, and its CPUs; 0: not known."""

    count: int = 1
    gpus: tuple[tuple[str, int], ...] = ()
    cpus: int = 0

    def has(self, kind: str) -> int:
        """Return how many GPUs of a type each has; the empty type is any."""
        return sum(count for name, count in self.gpus if kind in ("", name))


@dataclass(frozen=True)
class Partition:
    """A partition: its nodes, how many of them a job may have, and for how long. None: no limit."""

    name: str
    nodes: tuple[Nodes, ...] = ()
    is_default: bool = False
    time: int | None = None
    most_nodes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Partition:
        nodes = (Nodes(each["count"], tuple((k, n) for k, n in each["gpus"]), each["cpus"]) for each in data["nodes"])
        return cls(**{**data, "nodes": tuple(nodes)})

    @property
    def size(self) -> int:
        return sum(alike.count for alike in self.nodes)

    @property
    def gpus(self) -> dict[str, int]:
        """Return how many GPUs of each type its nodes have."""
        kinds = sorted({kind for alike in self.nodes for kind, _ in alike.gpus})
        return {kind: sum(alike.count * alike.has(kind) for alike in self.nodes) for kind in kinds}


def why_never(site: Site, asked: Asked, partitions: Sequence[Partition]) -> str | None:
    """Return why the site can never run such a job, to go after its name; None: it may, as far as this tells."""
    if not partitions:
        return None
    given = asked.partition or site.partition
    known = {each.name: each for each in partitions}
    names = given.split(",") if given else [each.name for each in partitions if each.is_default]
    if missing := next((name for name in names if name not in known), None):
        return f"has no partition {missing} (it has {', '.join(sorted(known))})"
    reasons = [next(_reasons(site, asked, known[name]), None) for name in names]
    # Slurm takes the first of several partitions that can start the job.
    return None if None in reasons or not reasons else reasons[0]


def _reasons(site: Site, asked: Asked, partition: Partition) -> Iterator[str]:
    for check in CHECKS:
        if why := check(site, asked, partition):
            yield why


def _gpus(site: Site, asked: Asked, partition: Partition) -> str | None:
    kind = site.gpu_name(asked.gpu) if asked.gpu else ""
    has = partition.gpus
    # What has no type here may have one for the cluster.
    if not asked.gpus or not has or (kind and ANY_GPU in has):
        return None
    if kind and kind not in has:
        return f"has no {kind} in its partition {partition.name} (it has {', '.join(has)}); {NAMES}"
    able = sum(alike.count for alike in partition.nodes if alike.has(kind) >= asked.gpus)
    what = f"{asked.gpus} {kind or 'GPUs'}"
    if not able:
        most = max(alike.has(kind) for alike in partition.nodes)
        return f"has no node with {what} in its partition {partition.name}: ask for at most {most}"
    if able < asked.nodes:
        return f"has {able} nodes with {what} in its partition {partition.name}, and the job asks for {asked.nodes}"
    return None


def _cpus(site: Site, asked: Asked, partition: Partition) -> str | None:
    cpus, known = asked.cpus_at(site), [alike.cpus for alike in partition.nodes]
    if cpus is None or not known or 0 in known or cpus <= max(known):
        return None
    return f"has no node with {cpus} CPUs in its partition {partition.name}: ask for at most {max(known)}"


def _nodes(site: Site, asked: Asked, partition: Partition) -> str | None:
    total, most = partition.size, partition.most_nodes
    if asked.nodes > total:
        return f"has {total} nodes in its partition {partition.name}, and the job asks for {asked.nodes}"
    if most is not None and asked.nodes > most and not (asked.qos or site.qos):
        return f"gives a job at most {most} nodes in its partition {partition.name}: ask for so many, {QOS}"
    return None


def _time(site: Site, asked: Asked, partition: Partition) -> str | None:
    time, most = asked.time_at(site), partition.time
    shorter = any(option_name(word) == "time-min" for word in (*site.options, *asked.options))
    # A QOS can have other limits than the partition, and that is not in the survey.
    if time is None or most is None or time <= most or shorter or asked.qos or site.qos:
        return None
    return (
        f"ends a job of its partition {partition.name} after {text_of(most)}, and the job asks for {text_of(time)}: "
        f"ask for at most that in resources.time (a longer run is a chain of batch jobs), {QOS}"
    )


Check = Callable[[Site, Asked, Partition], str | None]
CHECKS: Sequence[Check] = (_gpus, _nodes, _cpus, _time)
