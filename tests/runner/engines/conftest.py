"""Gives the tests of the process engine attempts that end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.runner.seams.engine import Presence
from tests.support.process_attempts import Attempts, Wait


@pytest.fixture(params=["forked", "own interpreter"])
def attempts(tmp_path: Path, wait_until: Wait, request: pytest.FixtureRequest) -> Iterator[Attempts]:
    """Return attempts whose wrappers are started in each of the two ways: in a home, and in no home."""
    made = Attempts(tmp_path, wait_until, tmp_path / "home" / "jobs" / "a-1" if request.param == "forked" else tmp_path)
    yield made
    for request in made.made:
        if made.engine.observe(request.paths).presence is Presence.RUNNING:
            made.wait(request.paths.running.exists)
            made.engine.stop(request.paths, force=True)
            made.end(request)
