"""Tests what a survey of a site tells about a job before it is submitted, and what it leaves to the cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rung.jobs.site.partitions import Nodes, Partition, why_never
from rung.jobs.site.settings import Asked, Site

DAY = 86_400
GPU = Partition(
    "gpu", (Nodes(2, (("a100", 4),), 8), Nodes(3, (("p100", 2),), 8)), is_default=True, time=DAY, most_nodes=4
)
LONG = Partition("long", (Nodes(1, (("p100", 2),), 8),), time=7 * DAY)
HERE = (GPU, LONG)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (Asked(partition="none"), "has no partition none (it has gpu, long)"),
        (Asked(partition="gpu,none"), "has no partition none"),
        (Asked(gpus=1, gpu="H100"), "has no h100 in its partition gpu (it has a100, p100); gpu_names"),
        (Asked(gpus=5, gpu="A100"), "has no node with 5 a100 in its partition gpu: ask for at most 4"),
        (Asked(gpus=5), "has no node with 5 GPUs in its partition gpu: ask for at most 4"),
        (Asked(gpus=1, gpu="A100", partition="long"), "has no a100 in its partition long (it has p100)"),
        (Asked(gpus=3, gpu="A100", nodes=3), "has 2 nodes with 3 a100 in its partition gpu, and the job asks for 3"),
        (Asked(nodes=6), "has 5 nodes in its partition gpu, and the job asks for 6"),
        (Asked(nodes=5), "gives a job at most 4 nodes in its partition gpu: ask for so many, or name a QOS"),
        (Asked(cpus=9), "has no node with 9 CPUs in its partition gpu: ask for at most 8"),
        (Asked(time=DAY + 60), "ends a job of its partition gpu after 1-00:00:00, and the job asks for 1-00:01:00"),
    ],
)
def test_what_no_node_and_no_patience_can_give_is_said(asked: Asked, why: str) -> None:
    assert (why_never(Site(), asked, HERE) or "").startswith(why)


@pytest.mark.parametrize(
    "asked",
    [
        Asked(),
        Asked(gpus=4, gpu="A100", nodes=2, cpus=8, time=DAY),
        # Slurm takes the first of several partitions that can start the job.
        Asked(partition="gpu,long", time=2 * DAY),
        # A QOS can have other limits than the partition.
        Asked(qos="long", time=2 * DAY, nodes=5),
        # The cluster itself makes it shorter.
        Asked(time=2 * DAY, options=("--time-min=60",)),
    ],
)
def test_what_may_run_is_left_to_the_cluster(asked: Asked) -> None:
    assert why_never(Site(), asked, HERE) is None


def test_the_settings_of_the_site_count_where_the_job_says_nothing() -> None:
    assert "has no partition none" in (why_never(Site(partition="none"), Asked(), HERE) or "")
    assert "after 1-00:00:00" in (why_never(Site(time=2 * DAY), Asked(), HERE) or "")
    assert why_never(Site(partition="none"), Asked(partition="gpu"), HERE) is None
    assert why_never(Site(gpu_names=(("A100", "ampere"),)), Asked(gpus=1, gpu="A100"), HERE) is not None


def test_nothing_is_refused_by_what_is_not_known() -> None:
    much = Asked(gpus=99, gpu="H100", nodes=99, cpus=999, time=99 * DAY)
    assert why_never(Site(), much, ()) is None
    # No default partition: only the cluster can tell.
    assert why_never(Site(), much, (replace(GPU, is_default=False),)) is None
    unknown = Partition("gpu", (Nodes(99, (("gpu", 4),)),), is_default=True)
    assert why_never(Site(), replace(much, gpus=4), (unknown,)) is None
    assert why_never(Site(), Asked(gpus=9), (Partition("gpu", (Nodes(),), is_default=True),)) is None
