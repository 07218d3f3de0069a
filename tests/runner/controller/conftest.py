"""Builds controllers with fake hosts for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.pretend import World

FLEET = {"turing": ["TITANRTX"], "pascal": ["P100"], "ampere": ["A100"]}
Build = Callable[..., World]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    made: list[World] = []

    def world(**hosts: list[str]) -> World:
        made.append(World(tmp_path, hosts or FLEET))
        return made[-1]

    yield world
    for each in made:
        each.close()
