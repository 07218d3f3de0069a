"""Tests that a controller with a full disk pauses and goes on by itself, while a job runs on its host.

In 0.1.0 it ended. tests/security has the same for jobs on this machine, and for a store that is locked.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.fleet import folders
from tests.fleet.campaign import Campaign
from tests.fleet.fleet import Fleet


@pytest.fixture
def campaign(tmp_path_factory: pytest.TempPathFactory, fleet: Fleet) -> Iterator[Campaign]:
    made = Campaign(tmp_path_factory.mktemp("full"), fleet)
    made.home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "rung-test", str(made.home)], check=True)
    yield made
    made.close()
    subprocess.run(["umount", "--lazy", str(made.home)], check=True)


def test_a_controller_with_a_full_disk_pauses_and_goes_on_when_there_is_room(campaign: Campaign) -> None:
    job = campaign.submit("full", "A100:1")
    controller = campaign.control()
    campaign.wait(lambda: campaign.running(job, steps=3))
    folders.fill(campaign.home)
    told = campaign.folder / "controller.log"
    campaign.wait(lambda: "the controller pauses" in told.read_text(errors="replace"))
    campaign.finish(job)
    assert controller.poll() is None
    folders.free(campaign.home)
    campaign.wait_for_end(job)
    assert controller.poll() is None
    assert told.read_text(errors="replace").count("the controller goes on") == 1
    assert len(campaign.attempts(job)) == 1
