"""Tests `rung launch --from` between hosts: a job begins at a checkpoint that another job wrote elsewhere."""

from __future__ import annotations

from tests.fleet.campaign import Campaign


def test_a_job_begins_at_a_checkpoint_that_lies_on_another_host(campaign: Campaign) -> None:
    saved = {"checkpoint": {"pattern": "step_*.pt"}}
    campaign.control()
    first = campaign.train("first", "A100:1", **saved)
    campaign.wait(lambda: campaign.running(first, steps=12))
    campaign.finish(first)
    (source,) = campaign.wait_for_end(first)
    second = campaign.train("second", "P100:1", start=f"{first}@10", **saved)
    campaign.wait(lambda: campaign.running(second))
    campaign.finish(second)
    (begun,) = campaign.wait_for_end(second)
    assert (source.host, begun.host) == ("ampere", "pascal")
    assert (begun.resumed_from, begun.resumed_step) == ("step_10.pt", 10)
    assert campaign.steps(second, 1)[0] == 11
    assert not list(campaign.home.glob(".from-*"))
