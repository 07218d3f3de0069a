"""Tests that a job never begins from scratch because its host could not be asked, also after a retry.

In 0.1.0 the job began from scratch on the same host after `host_lost_after`, and its good checkpoints were set aside.
"""

from __future__ import annotations

import time

from rung.jobs.model.state import JobState
from tests.fleet.campaign import Campaign

# No copies here, and a host that is given up soon.
FIELDS = {"checkpoint": {"mirror": "off"}, "recovery": {"host_lost_after": "3s"}}


def aside(campaign: Campaign, job: str) -> list[str]:
    events = (event for event in campaign.store.events(job) if event.kind == "set_aside")
    return [file for event in events for file in event.data["files"]]


def waits(campaign: Campaign, job: str) -> bool:
    return campaign.job(job).reason.startswith("waits for ampere")


def test_a_job_waits_for_the_checkpoints_of_a_host_that_went_away_while_it_recovered(campaign: Campaign) -> None:
    job = campaign.train("unseen", "A100:1", "P100:1", **FIELDS)
    campaign.control()
    campaign.wait(lambda: campaign.running(job, steps=12))
    saved = campaign.last(job).saved
    campaign.kill(job)
    campaign.wait(lambda: campaign.job(job).state is JobState.RECOVERING)
    campaign.fleet.hosts["ampere"].cut()
    campaign.wait(lambda: waits(campaign, job))
    time.sleep(6)  # twice the time after which the host is given up
    assert waits(campaign, job) and campaign.job(job).state is JobState.RECOVERING
    assert len(campaign.attempts(job)) == 1
    assert "waiting_for_host" in [event.kind for event in campaign.store.events(job)]
    campaign.fleet.hosts["ampere"].reconnect()
    campaign.wait(lambda: campaign.running(job, 2))
    again = campaign.last(job)
    assert (again.host, again.residence) == ("ampere", 1)
    assert again.resumed_from is not None and (again.resumed_step or 0) >= 10, saved
    assert aside(campaign, job) == []
    # The look that was cut off is swept.
    campaign.wait(lambda: campaign.probes("ampere") == set())
    campaign.finish(job)
    campaign.wait_for_end(job)


def test_a_retry_after_a_cut_waits_as_well_and_a_person_can_give_the_host_up(campaign: Campaign) -> None:
    jobs = [campaign.train(name, "A100:1", "P100:1", **FIELDS) for name in ("waits", "leaves")]
    campaign.control()
    campaign.wait(lambda: all(campaign.running(job, steps=12) for job in jobs))
    waiting = next(job for job in jobs if campaign.last(job).host == "ampere")
    for job in jobs:
        campaign.rung("cancel", job)
        campaign.wait(lambda job=job: campaign.job(job).ended)
    campaign.fleet.hosts["ampere"].cut()
    campaign.rung("retry", waiting)
    campaign.wait(lambda: waits(campaign, waiting))
    time.sleep(6)
    assert campaign.job(waiting).state is JobState.QUEUED and len(campaign.attempts(waiting)) == 1
    campaign.rung("cancel", waiting)
    campaign.rung("retry", waiting, "--give-up-hosts")
    campaign.wait(lambda: campaign.running(waiting, 2))
    again = campaign.last(waiting)
    assert again.host != "ampere" and again.resumed_from is None and "a person gave up ampere" in again.because
    campaign.finish(waiting)
    campaign.wait_for_end(waiting)
