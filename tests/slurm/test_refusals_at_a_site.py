"""Tests requests that a real Slurm will never take: each ends its job once, with the reason and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import EngineError, NeverTaken
from rung.jobs.model.state import JobState
from rung.runner.engines.slurm.queue import SlurmQueue
from rung.runner.hosts.local_remote import LocalRemote
from rung.runner.hosts.site_survey import ask_site
from tests.slurm.cluster import Cluster
from tests.slurm.site import SiteLab

STEP = ["sh", "-c", "echo step 1 loss 0.5"]


def kinds(lab: SiteLab, job: str) -> list[str]:
    return [each.kind for each in lab.store(lambda store: store.events(job))]


def failed(lab: SiteLab, job: str) -> str:
    """Return why a job failed: without a fault of the machine, and with nothing left in the queue of the cluster."""
    assert lab.ended(job).state is JobState.FAILED
    assert "fault" not in kinds(lab, job)
    assert [each["state"] for each in lab.batch_jobs() if job in each["name"] and each["state"] == "PENDING"] == []
    return lab.job(job).reason


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"slurm": {"partition": "none"}}, "lab has no partition none (it has gpu, urgent)"),
        ({"resources": {"gpu": ["H100:1"]}}, "lab has no h100 in its partition gpu (it has a100, p100, titanrtx)"),
        ({"resources": {"gpu": ["A100:5"]}}, "lab has no node with 5 a100 in its partition gpu: ask for at most 4"),
        ({"resources": {"nodes": 4}}, "lab has 3 nodes in its partition gpu, and the job asks for 4"),
        ({"resources": {"time": "3d"}}, "lab ends a job of its partition gpu after 1-00:00:00"),
    ],
    ids=["partition", "type of GPU", "GPUs", "nodes", "time"],
)
def test_what_the_survey_knows_is_refused_before_anything_is_submitted(
    lab: SiteLab, fields: dict[str, Any], why: str
) -> None:
    job = lab.submit("beyond", run=STEP, **fields)
    lab.control()
    assert failed(lab, job).startswith(why)
    assert lab.attempts(job) == [] and not any(job in each["name"] for each in lab.batch_jobs())
    # From now on it is known, and a launch refuses it by itself.
    said = lab.rung("launch", lab.folder / "beyond.yaml", expect=2)
    assert said.startswith(f"rung: beyond: no host of the list can ever run it: {why}") and said.count("\n") == 1
    assert [each.id for each in lab.store(lambda store: store.jobs())] == [job]


def test_what_rung_hosts_has_seen_is_refused_at_the_launch(lab: SiteLab) -> None:
    lab.submit("first", run=STEP)
    assert "4 a100, 2 p100, 2 titanrtx" in lab.rung("hosts")
    # The launch asks nobody.
    lab.cluster.kill_controller()
    try:
        (lab.folder / "first.yaml").write_text("name: first\nrun: 'true'\nslurm: {partition: none}\nworkdir: first\n")
        said = lab.rung("launch", lab.folder / "first.yaml", expect=2)
    finally:
        lab.cluster.start_controller()
    assert "lab has no partition none (it has gpu, urgent)" in said


def test_what_only_sbatch_knows_is_refused_once_in_its_words(lab: SiteLab) -> None:
    job = lab.submit("strange", run=STEP, slurm={"options": ["--constraint=none"]}, recovery={"infra_retries": 3})
    lab.control()
    why = failed(lab, job)
    assert why.startswith("lab: the cluster does not take the job: Batch job submission failed: Invalid feature")
    assert "take a --constraint that no node has out of slurm.options" in why
    (attempt,) = lab.attempts(job)
    assert attempt.fault is None
    assert "Invalid feature specification" in lab.rung("history", job)


def test_a_batch_job_that_would_wait_for_ever_is_taken_back_and_refused(lab: SiteLab) -> None:
    """Slurm accepts a time over the limit; with a QOS the survey cannot know that it is over the limit."""
    job = lab.submit("endless", run=STEP, slurm={"qos": "any"}, resources={"time": "3d"})
    lab.control()
    why = failed(lab, job)
    assert "would never start it (PartitionTimeLimit): ask for a time within the limit" in why
    (attempt,) = lab.attempts(job)
    assert attempt.fault is None
    assert [each["state"] for each in lab.batch_jobs() if job in each["name"]] == ["CANCELLED"]


@pytest.mark.parametrize(
    ("option", "never"),
    [
        ("--partition=none", True),
        ("--gres=gpu:h100:1", True),
        ("--gres=gpu:a100:9", True),
        ("--gres=none:1", True),
        ("--constraint=none", True),
        ("--mem=900g", True),
        ("--reservation=none", True),
        ("--licenses=none:1", True),
        ("--no-such-option", True),
        # Without the nodes that we exclude there is none left, and that passes.
        ("--gres=gpu:a100:1 --exclude=ampere", False),
    ],
)
def test_the_words_of_sbatch_are_understood(cluster: Cluster, tmp_path: Path, option: str, never: bool) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    queue = SlurmQueue(LocalRemote("lab", cluster.env()), "abc")
    with pytest.raises(EngineError) as raised:
        queue.submit(option.split(), [str(tmp_path / "script")], others=False)
    assert isinstance(raised.value, NeverTaken) is never, raised.value


def test_a_survey_has_the_partitions_of_the_cluster(cluster: Cluster) -> None:
    # In another order after its controller has been killed.
    first, second = sorted(ask_site(LocalRemote("lab", cluster.env())).partitions, key=lambda each: each.name)
    assert (first.name, first.is_default, first.size, first.time, first.most_nodes) == ("gpu", True, 3, 86_400, None)
    assert first.gpus == {"a100": 4, "p100": 2, "titanrtx": 2} and second.name == "urgent" and not second.is_default
