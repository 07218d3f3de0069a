"""Tests which words of a cluster mean that it will never take a job."""

from __future__ import annotations

import pytest

from rung.jobs.site.refusals import read_refusal, waits_for_ever

FAILED = "sbatch: error: Batch job submission failed: "


# As Slurm 22.05 and 24.11 print them.
@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Invalid partition name specified", "slurm.partition"),
        ("User's group not permitted to use this partition", "slurm.partition"),
        ("Invalid account or account/partition combination specified", "slurm.account"),
        ("Invalid qos specification", "slurm.qos"),
        ("Invalid generic resource (gres) specification", "gpu_names"),
        ("Invalid Trackable RESource (TRES) specification", "gpu_names"),
        ("Invalid feature specification", "--constraint"),
        ("Requested reservation is invalid", "--reservation"),
        ("Invalid license specification", "--licenses"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "resources.time"),
        ("Node count specification invalid", "resources.nodes"),
        ("Requested node configuration is not available", "sinfo -N"),
    ],
)
def test_a_request_that_is_refused_for_good_says_what_to_do(said: str, advice: str) -> None:
    found = read_refusal(f"{FAILED}{said}\n", said, excluding=False)
    assert found is not None and found.words == said
    assert advice in found.advice and found.text.startswith(f"{said}; another try would say the same, so ")


@pytest.mark.parametrize(
    "said",
    [
        "Unable to contact slurm controller (connect failure)",
        "Socket timed out on send/recv operation",
        "Requested partition configuration not available now",
        "Required partition not available (inactive or drain)",
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "Slurm temporarily unable to accept job, sleeping and retrying",
        "Unspecified error",
        "",
    ],
)
def test_what_may_pass_is_no_refusal_for_good(said: str) -> None:
    assert read_refusal(f"{FAILED}{said}\n", said, excluding=False) is None


def test_a_limit_on_one_job_is_for_good_and_one_on_all_jobs_is_not() -> None:
    policy = f"{FAILED}Job violates accounting/QOS policy"
    assert read_refusal(f"sbatch: error: QOSMaxCpuPerJobLimit\n{policy}", "x", excluding=False) is not None
    assert read_refusal(f"sbatch: error: QOSMaxCpuPerUserLimit\n{policy}", "x", excluding=False) is None


@pytest.mark.parametrize("reason", ["PartitionTimeLimit", "QOSMaxWallDurationPerJobLimit", "AssocMaxNodePerJobLimit"])
def test_a_batch_job_that_waits_for_ever_is_told_from_one_that_waits(reason: str) -> None:
    assert waits_for_ever(reason, "gpu") and waits_for_ever(reason, "gpu,long") is None


# A node that is down makes a partition smaller only for now.
@pytest.mark.parametrize(
    "reason", ["Priority", "Resources", "PartitionNodeLimit", "QOSMaxJobsPerUserLimit", "PartitionConfig", ""]
)
def test_a_batch_job_that_may_start_later_waits(reason: str) -> None:
    assert waits_for_ever(reason, "gpu") is None
