"""Starts one fleet for all tests that need it, and restores it after every test.

On a machine that cannot run a fleet these tests fail with a message about what to install. RUNG_TEST_FLEET=off leaves
them out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# The fleet is also a package that people run, so it is imported by its full name.
from tests.fleet.campaign import Campaign
from tests.fleet.fleet import Fleet

collect_ignore_glob = ["test_*.py"] if os.environ.get("RUNG_TEST_FLEET") == "off" else []

FLEET = pytest.StashKey[Fleet]()


@pytest.fixture(scope="session")
def whole_fleet(pytestconfig: pytest.Config) -> Fleet:
    """Bring up a fleet with a free number, once for the tests of all folders, and take it down at the end."""
    if FLEET not in pytestconfig.stash:
        claimed = ExitStack()
        pytestconfig.add_cleanup(claimed.close)
        pytestconfig.stash[FLEET] = claimed.enter_context(Fleet.claimed()).up()
    return pytestconfig.stash[FLEET]


@pytest.fixture
def fleet(whole_fleet: Fleet) -> Iterator[Fleet]:
    """Return the fleet, healthy and empty; undo afterwards what the test did to it."""
    yield whole_fleet
    whole_fleet.restore()


@pytest.fixture
def campaign(tmp_path: Path, fleet: Fleet) -> Iterator[Campaign]:
    """Return jobs on the fleet; their controllers end with the test."""
    made = Campaign(tmp_path, fleet)
    yield made
    made.close()
