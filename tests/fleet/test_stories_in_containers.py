"""Runs the recoveries that are the same on every engine in containers on the hosts of the fleet."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.engine import DOCKER
from tests.fleet.campaign import Campaign
from tests.support.stories import Place, Stories


@dataclass(frozen=True)
class TheFleet:
    campaign: Campaign
    engine = DOCKER

    def run(self, name: str, script: Path, **fields: Any) -> tuple[str, list[Attempt]]:
        folder = self.campaign.folder / f"work-{name}"
        folder.mkdir()
        shutil.copy(script, folder / "train.py")
        job = self.campaign.submit(name, "A100:1", image=self.campaign.fleet.images["train"], **fields)
        self.campaign.control()
        return job, self.campaign.wait_for_end(job)

    def log(self, job: str, attempt: int) -> str:
        return self.campaign.rung("logs", job, "--attempt", str(attempt))


@pytest.fixture
def place(campaign: Campaign) -> Place:
    return TheFleet(campaign)


class TestInContainers(Stories):
    pass
