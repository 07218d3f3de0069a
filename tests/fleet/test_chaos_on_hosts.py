"""Tests that random faults of hosts, engines, containers and controllers violate nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import Wanted, run
from tests.fleet.fleet import Fleet

FAULTS = 25


@pytest.mark.long
def test_random_faults_of_hosts_violate_nothing(fleet: Fleet, tmp_path: Path) -> None:
    result = run(tmp_path / "chaos", Wanted(20261118, FAULTS, place=fleet))
    assert result.found == []
    assert result.journal.faults.total() == FAULTS
    assert any(job.state == "SUCCEEDED" for job in result.evidence.jobs)
    assert any(hosts for hosts in result.journal.hosts)
