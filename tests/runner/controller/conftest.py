"""Builds controllers with fake hosts for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pretend import Build, worlds

FLEET = {"turing": ["TITANRTX"], "pascal": ["P100"], "ampere": ["A100"]}


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with worlds(tmp_path, **FLEET) as build:
        yield build
