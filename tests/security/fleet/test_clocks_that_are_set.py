"""Tests that a clock which is set while a host is away gives no host up and keeps no end waiting.

In 0.1.0 a clock set forward by 1,900 s during a cut gave the host up, and two attempts ran beside each other; set back
by 90 s, ends were seen 90 s late and `rung cancel` did nothing.
"""

from __future__ import annotations

import time
from pathlib import Path

from rung.jobs.model.state import JobState
from tests.fleet.campaign import Campaign

CLOCK = Path(__file__).parent / "clock"


def test_a_clock_that_is_set_during_a_cut_moves_no_job_and_delays_no_cancel(campaign: Campaign) -> None:
    clock = campaign.folder / "clock"
    clock.write_text("0")
    job = campaign.submit("clock", "A100:1", "P100:1")
    campaign.control(PYTHONPATH=str(CLOCK), TEST_CLOCK=str(clock))
    campaign.wait(lambda: campaign.running(job, steps=3))
    first = campaign.last(job).host
    host = campaign.fleet.hosts[first]
    host.cut()
    campaign.wait(lambda: "is unreachable since" in campaign.job(job).reason)
    clock.write_text("1900")
    time.sleep(5)  # two dozen turns of the controller
    assert campaign.job(job).state is JobState.RUNNING and len(campaign.attempts(job)) == 1
    host.reconnect()
    campaign.wait(lambda: campaign.last(job).unreachable_since is None)
    assert campaign.store.orphans() == []
    clock.write_text("-90")
    campaign.rung("cancel", job)
    began = time.monotonic()
    campaign.wait(lambda: campaign.job(job).ended)
    assert campaign.job(job).state is JobState.CANCELLED
    assert time.monotonic() - began < 60, "less than the clock was set back by"
