"""Tests that the cluster of the tests behaves as a real one does, in what the engine relies on."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests import pace
from tests.slurm.cluster import NODES, Cluster, Node


def starts(cluster: Cluster, number: str) -> None:
    pace.until(lambda: cluster.job(number)["JobState"] == "RUNNING", 60, f"job {number} runs")


def is_ready(cluster: Cluster, number: str) -> None:
    """Wait until the script has said so: a job runs before its script does."""
    starts(cluster, number)
    pace.until(lambda: "ready\n" in printed(cluster, number), 60, f"the script of job {number} is ready")


def printed(cluster: Cluster, number: str) -> str:
    path = cluster.folder / f"slurm-{number}.out"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_a_job_gets_gpus_of_the_type_it_asks_for_and_its_exit_code_is_kept(cluster: Cluster, node: Node) -> None:
    number = cluster.submit("echo $CUDA_VISIBLE_DEVICES; exit 3", f"--gres=gpu:{node.gpu}:2")
    job = cluster.ended(number)
    assert (job["JobState"], job["ExitCode"], job["NodeList"]) == ("FAILED", "3:0", node.name)
    assert printed(cluster, number) == "0,1\n"


def test_a_gpu_that_no_node_has_is_refused_at_once(cluster: Cluster) -> None:
    with pytest.raises(AssertionError, match="Requested node configuration is not available"):
        cluster.submit("true", "--gres=gpu:h100:1")


def test_an_urgent_job_pushes_another_one_out(cluster: Cluster) -> None:
    script = "trap 'echo told; exit 7' TERM; echo ready; sleep 600 & wait"
    long = cluster.submit(script, "--gres=gpu:a100:4", "--no-requeue")
    is_ready(cluster, long)
    urgent = cluster.submit("true", "--gres=gpu:a100:1", "--partition=urgent")
    assert cluster.ended(urgent)["JobState"] == "COMPLETED"
    assert cluster.ended(long)["JobState"] == "PREEMPTED"
    # Its exit code is not always kept: the controller may forget the job's node before that has told it.
    pace.until(lambda: "told\n" in printed(cluster, long), 60, "its last words are there")


def test_a_cancelled_job_is_told_to_end(cluster: Cluster) -> None:
    number = cluster.submit("trap 'echo told; exit 5' TERM; echo ready; sleep 600 & wait")
    is_ready(cluster, number)
    cluster.run("scancel", number)
    assert cluster.ended(number)["JobState"] == "CANCELLED"
    pace.until(lambda: "told\n" in printed(cluster, number), 60, "its last words are there")


def test_a_controller_that_is_killed_and_comes_back_knows_its_jobs(cluster: Cluster) -> None:
    number = cluster.submit("while [ ! -e go ]; do sleep 0.1; done; exit 6")
    starts(cluster, number)
    saved = cluster.folder / "state" / "job_state"
    before = saved.stat().st_mtime_ns if saved.exists() else 0
    # The controller saves its jobs a few seconds after a change, and it may have saved this one already.
    held = cluster.submit("true", "--hold")
    pace.until(lambda: saved.exists() and saved.stat().st_mtime_ns > before, 120, "the controller has saved its jobs")
    cluster.kill_controller()
    cluster.start_controller()
    (cluster.folder / "go").touch()
    pace.until(lambda: "JobState" in cluster.run("scontrol", "show", "job", number, check=False), 60, "it answers")
    assert cluster.ended(number)["ExitCode"] == "6:0"
    cluster.run("scancel", held)


def test_nothing_is_left_of_a_cluster_that_is_taken_down() -> None:
    with tempfile.TemporaryDirectory(prefix="rung-slurm-") as name:
        Path(name).chmod(0o755)
        made = Cluster(Path(name))
        try:
            made.up()
            starts(made, made.submit("sleep 600"))
        finally:
            made.down()
        assert not made.processes()
