"""The fleet that the tests in this folder share: one for a session, repaired after every test.

A machine that cannot have a fleet fails these tests, with the line that says what to install; RUNG_TEST_FLEET=off
leaves them out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# The fleet is a package that people run, too; pytest puts no folder of tests on the path.
from tests.fleet.fleet import Fleet

collect_ignore_glob = ["test_*.py"] if os.environ.get("RUNG_TEST_FLEET") == "off" else []


@pytest.fixture(scope="session")
def whole_fleet() -> Iterator[Fleet]:
    """Bring up a fleet under a number of its own, and take it down whatever happened."""
    with Fleet.claimed() as fleet:
        yield fleet.up()


@pytest.fixture
def fleet(whole_fleet: Fleet) -> Iterator[Fleet]:
    """Return the fleet, healthy and empty; whatever a test does to it is undone."""
    yield whole_fleet
    whole_fleet.restore()
