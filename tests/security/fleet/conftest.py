"""Gives the tests of this folder the hosts of the fleet and attempts on them."""

from __future__ import annotations

import os

from tests.fleet.conftest import campaign as campaign
from tests.fleet.conftest import fleet as fleet
from tests.fleet.conftest import whole_fleet as whole_fleet
from tests.fleet.containers.conftest import attempts as attempts

collect_ignore_glob = ["test_*.py"] if os.environ.get("RUNG_TEST_FLEET") == "off" else []
