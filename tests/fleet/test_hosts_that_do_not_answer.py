"""Tests hosts that do not answer while jobs run: nothing is killed or run twice, and no line is lost or doubled.

All three failures happen at the same time, on one host each. The scenario runs once, and every test checks one result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.state import JobState
from tests.fleet.campaign import Campaign
from tests.fleet.fleet import Fleet

# How long the link is cut: longer than a keep-alive (10 s) or a full send buffer (30 s) could hide.
CUT_SECONDS = 40.0


class Scenario:
    """A link cut in the middle of a run, a run that finishes while its link is cut, and a host that is frozen."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        hosts = campaign.fleet.hosts
        self.cut = campaign.submit("cut", "A100:1")
        self.done = campaign.submit("done", "P100:1")
        self.frozen = campaign.submit("frozen", "TITANRTX:1")
        self.jobs = (self.cut, self.done, self.frozen)
        campaign.control()
        campaign.wait(lambda: all(campaign.running(job, steps=5) for job in self.jobs))
        hosts["ampere"].cut()
        hosts["pascal"].cut()
        hosts["turing"].freeze()
        began = time.monotonic()
        campaign.wait(lambda: all("is unreachable since" in campaign.job(job).reason for job in self.jobs))
        self.shown = campaign.rung("queue", "--wide")
        self.states = [campaign.job(job).state for job in self.jobs]
        campaign.finish(self.done)
        campaign.wait(lambda: time.monotonic() - began > CUT_SECONDS)
        hosts["ampere"].reconnect()
        hosts["pascal"].reconnect()
        hosts["turing"].thaw()
        campaign.wait(lambda: campaign.job(self.done).ended)
        for job in (self.cut, self.frozen):
            steps = len(campaign.steps(job, 1))
            campaign.wait(lambda job=job, steps=steps: len(campaign.steps(job, 1)) > steps)
            campaign.finish(job)
        self.attempts: dict[str, list[Attempt]] = {job: campaign.wait_for_end(job) for job in self.jobs}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory, whole_fleet: Fleet) -> Iterator[Scenario]:
    campaign = Campaign(tmp_path_factory.mktemp("silence"), whole_fleet)
    yield Scenario(campaign)
    campaign.close()
    whole_fleet.restore()


def test_an_unreachable_host_is_shown_and_the_job_keeps_its_state(scenario: Scenario) -> None:
    assert scenario.states == [JobState.RUNNING] * 3
    for host in scenario.campaign.fleet.hosts:
        assert f"{host} is unreachable since " in scenario.shown


def test_the_same_attempt_goes_on_after_a_long_cut(scenario: Scenario) -> None:
    assert len(scenario.attempts[scenario.cut]) == 1
    kinds = [event.kind for event in scenario.campaign.store.events(scenario.cut)]
    assert kinds.count("unreachable") == kinds.count("reachable") == 1


def test_no_line_is_lost_or_doubled(scenario: Scenario) -> None:
    for job in scenario.jobs:
        steps = scenario.campaign.steps(job, 1)
        assert steps == list(range(1, len(steps) + 1))
    # The run printed also while the link was cut.
    assert len(scenario.campaign.steps(scenario.cut, 1)) > CUT_SECONDS


def test_a_run_that_ends_while_the_link_is_cut_has_succeeded_and_is_not_run_again(scenario: Scenario) -> None:
    assert scenario.campaign.job(scenario.done).state is JobState.SUCCEEDED
    assert len(scenario.attempts[scenario.done]) == 1


def test_a_frozen_host_goes_on_with_the_same_attempt_when_it_thaws(scenario: Scenario) -> None:
    assert len(scenario.attempts[scenario.frozen]) == 1
