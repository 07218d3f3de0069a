"""Gives the tests of messages a service on the loopback, and a store with jobs in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rung.jobs.model.paths import HomePaths
from rung.runner.state.store import Store
from tests.support.message_server import MessageServer


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessageServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with MessageServer().serving() as server:
        yield server


@pytest.fixture
def paths(home: Path) -> HomePaths:
    home.mkdir(mode=0o700)
    return HomePaths(home)


@pytest.fixture
def store(paths: HomePaths) -> Iterator[Store]:
    with closing(Store(paths.store)) as opened:
        yield opened
