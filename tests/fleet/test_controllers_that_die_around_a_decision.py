"""Tests on real hosts that a controller killed between decision and first step changes nothing."""

from __future__ import annotations

from collections import Counter

from tests.fleet.campaign import Campaign
from tests.support.dying import (
    FIELDS,
    RUNGS,
    WANTED,
    assert_each_attempt_ran_once,
    kill_around_decisions,
    outline,
)


def test_controllers_killed_after_a_decision_and_before_the_first_step_change_nothing(campaign: Campaign) -> None:
    undisturbed = campaign.submit("undisturbed", "A100:1", **FIELDS)
    campaign.control()
    wanted = outline(campaign.wait_for_end(undisturbed))
    campaign.kill_controller()
    assert [attempt["rung"] for attempt in wanted] == RUNGS
    hits: Counter[str] = Counter()
    for round in range(3):
        job = campaign.submit(f"dying{round}", "A100:1", **FIELDS)
        hits += kill_around_decisions(campaign.store, job, campaign.control, campaign.kill_controller)
        campaign.kill_controller()
        assert outline(campaign.attempts(job)) == wanted
        assert_each_attempt_ran_once(campaign.store, job)
        for number in range(1, len(RUNGS) + 1):
            assert campaign.log(job, number).count("rung| knobs ") == 1, f"attempt {number} ran more than once"
        if min(hits["decided"], hits["started"]) >= WANTED:
            break
    assert min(hits["decided"], hits["started"]) >= WANTED, hits
    assert campaign.store.leases() == []
    assert campaign.containers("ampere") == set()
