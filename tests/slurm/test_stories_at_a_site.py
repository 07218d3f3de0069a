"""Runs the recoveries that are the same on every engine as batch jobs of a real Slurm."""

from __future__ import annotations

import pytest

from tests.slurm.site import SiteLab
from tests.support.stories import Place, Stories


@pytest.fixture
def place(lab: SiteLab) -> Place:
    return lab


@pytest.mark.long
@pytest.mark.sample
class TestAtASite(Stories):
    pass
