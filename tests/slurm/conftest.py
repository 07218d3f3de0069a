"""Starts one Slurm cluster for all tests that need it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.site import SiteLab


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    # Its sockets must be open to every user, so it cannot lie in pytest's own folder.
    with tempfile.TemporaryDirectory(prefix="rung-slurm-") as name:
        Path(name).chmod(0o755)
        made = Cluster(Path(name))
        try:
            yield made.up()
        finally:
            made.down()


@pytest.fixture
def lab(tmp_path: Path, cluster: Cluster) -> Iterator[SiteLab]:
    made = SiteLab(tmp_path, cluster)
    try:
        yield made
    finally:
        made.close()
