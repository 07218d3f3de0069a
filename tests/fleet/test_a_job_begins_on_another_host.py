"""Tests `rung launch --from` between hosts: a job begins at a checkpoint that another job wrote elsewhere."""

from __future__ import annotations

from tests.fleet.campaign import Campaign

SAVED = {"checkpoint": {"pattern": "step_*.pt", "mirror_every": 1}}


def test_a_job_begins_at_a_checkpoint_that_lies_on_another_host(campaign: Campaign) -> None:
    campaign.control()
    first = campaign.train("first", "A100:1", **SAVED)
    campaign.wait(lambda: campaign.running(first, steps=12))
    campaign.wait(lambda: any(event.kind == "mirrored" for event in campaign.store.events(first)))
    campaign.finish(first)
    (source,) = campaign.wait_for_end(first)
    second = campaign.train("second", "P100:1", start=f"{first}@10", **SAVED)
    campaign.wait(lambda: campaign.running(second))
    campaign.finish(second)
    (begun,) = campaign.wait_for_end(second)
    assert (source.host, begun.host) == ("ampere", "pascal")
    assert (begun.resumed_from, begun.resumed_step) == ("step_10.pt", 10)
    assert campaign.steps(second, 1)[0] == 11
    assert not list(campaign.home.glob(".from-*"))

    # The host of the first job is away: what has been copied of it to this machine is used.
    copies = {path.name for path in (campaign.home / "jobs" / first / "mirror").iterdir()}
    before = {path: path.read_bytes() for path in (campaign.home / "jobs" / first / "mirror").iterdir()}
    campaign.fleet.hosts["ampere"].cut()
    third = campaign.train("third", "P100:1", start=first, **SAVED)
    campaign.wait(lambda: campaign.running(third))
    campaign.finish(third)
    (begun,) = campaign.wait_for_end(third)
    assert begun.resumed_from in copies and begun.resumed_step == begun.planned_step
    assert {path: path.read_bytes() for path in before} == before, "copied, not moved"
