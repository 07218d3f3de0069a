"""Tests that random faults of a cluster, its nodes, its batch jobs and of controllers violate nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import Wanted, run
from tests.chaos.slurm_jobs import cluster_of_its_own

FAULTS = 15


@pytest.mark.long
def test_random_faults_of_a_cluster_violate_nothing(tmp_path: Path) -> None:
    with cluster_of_its_own() as cluster:
        result = run(tmp_path / "chaos", Wanted(20261118, FAULTS, place=cluster))
    assert result.found == []
    assert result.journal.faults.total() == FAULTS
    assert any(job.state == "SUCCEEDED" for job in result.evidence.jobs)
