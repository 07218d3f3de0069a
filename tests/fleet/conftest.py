"""Starts one fleet for all tests of this folder, and restores it after every test.

On a machine that cannot run a fleet these tests fail with a message about what to install. RUNG_TEST_FLEET=off leaves
them out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# The fleet is also a package that people run, so it is imported by its full name.
from tests.fleet.fleet import Fleet

collect_ignore_glob = ["test_*.py"] if os.environ.get("RUNG_TEST_FLEET") == "off" else []


@pytest.fixture(scope="session")
def whole_fleet() -> Iterator[Fleet]:
    """Bring up a fleet with a free number, and take it down at the end."""
    with Fleet.claimed() as fleet:
        yield fleet.up()


@pytest.fixture
def fleet(whole_fleet: Fleet) -> Iterator[Fleet]:
    """Return the fleet, healthy and empty; undo afterwards what the test did to it."""
    yield whole_fleet
    whole_fleet.restore()
