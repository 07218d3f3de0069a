"""Tests what is made of a short batch job that ended without an answer."""

from __future__ import annotations

import pytest

from rung.jobs.model.errors import EngineError, HostUnreachable, NeverTaken, RunCutShort
from rung.runner.engines.slurm.job_table import BatchJob
from rung.runner.engines.slurm.short_end import error_for

KILLED = "slurmstepd-n1: error: Exceeded job memory limit\nslurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT ... ***"


def batch(state: str, reason: str = "", nodes: str = "n1") -> BatchJob:
    return BatchJob("7", "rung-short-1", state, reason, nodes, partition="gpu")


@pytest.mark.parametrize(
    ("state", "log", "says"),
    [
        # Without control groups, a job that is ended for memory is one that failed.
        ("FAILED", KILLED, "ran out of memory: ask for more in resources.memory"),
        ("COMPLETING", KILLED, "ran out of memory"),
        ("OUT_OF_MEMORY", "", "ran out of memory"),
        ("FAILED", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch.", "ran out of memory"),
        ("TIMEOUT", "", "reached its time limit: ask for more in resources.time"),
        ("FAILED", "a line\nshort_batch.sh: 17: cannot create /x/out", "without an answer .*: cannot create /x/out"),
        ("FAILED", "", "without an answer .FAILED"),
    ],
)
def test_an_end_of_its_own_says_what_to_do(state: str, log: str, says: str) -> None:
    error = error_for("lab", batch(state), "", log)
    assert isinstance(error, RunCutShort)
    with pytest.raises(RunCutShort, match=rf"^lab: a short job .*{says}"):
        raise error


@pytest.mark.parametrize("state", ["CANCELLED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL"])
def test_one_that_somebody_ended_says_nothing_about_the_command(state: str) -> None:
    error = error_for("lab", batch(state), "", "")
    assert type(error) is EngineError and "a short job was ended: it" in str(error)


def test_one_that_the_cluster_has_forgotten_was_not_refused() -> None:
    said = "sbatch: error: Job 4 no longer found and exit code not found"
    error = error_for("lab", None, said, "")
    assert type(error) is EngineError and "the cluster has forgotten it" in str(error)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"),
        (None, ""),
        (batch("PENDING", "Priority", ""), ""),
    ],
)
def test_a_cluster_that_has_no_place_or_is_away_is_asked_again(found: BatchJob | None, said: str) -> None:
    assert isinstance(error_for("lab", found, said, ""), HostUnreachable)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "sbatch: error: Batch job submission failed: Invalid account or account/partition combination"),
        (batch("PENDING", "PartitionTimeLimit", ""), ""),
    ],
)
def test_one_that_the_cluster_never_takes_says_what_to_change(found: BatchJob | None, said: str) -> None:
    error = error_for("lab", found, said, "")
    assert (isinstance(error, NeverTaken) and "in slurm.account" in str(error)) or "in resources.time" in str(error)


def test_one_that_still_runs_did_not_end_in_time() -> None:
    assert "did not end in time on n1" in str(error_for("lab", batch("RUNNING"), "", ""))
