"""Tests that attempts go on, or end with the right fault, when an engine, sshd and the controller are killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rung.jobs.model.fault import FaultKind
from tests.fleet.campaign import Campaign
from tests.fleet.fleet import Fleet


class Scenario:
    """On one host the engine dies and leaves its containers alone, on one it ends them, on one sshd is restarted."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign, hosts = campaign, campaign.fleet.hosts
        self.kept = campaign.submit("kept", "A100:1")
        self.ended = campaign.submit("ended", "P100:1")
        self.login = campaign.submit("login", "TITANRTX:1")
        jobs = (self.kept, self.ended, self.login)
        campaign.control()
        campaign.wait(lambda: all(campaign.running(job, steps=3) for job in jobs))
        hosts["ampere"].kill_engine()
        hosts["pascal"].kill_engine()
        hosts["turing"].restart_sshd()
        campaign.wait(lambda: all("is unreachable since" in campaign.job(job).reason for job in jobs[:2]))
        campaign.kill_controller()
        self.alone = len(campaign.steps(self.login, 1))
        hosts["ampere"].start_engine("--live-restore")
        hosts["pascal"].start_engine()
        campaign.control()
        campaign.wait(lambda: campaign.running(self.ended, 2))
        for job in (self.kept, self.login):
            steps = len(campaign.steps(job, 1))
            campaign.wait(lambda job=job, steps=steps: len(campaign.steps(job, 1)) > steps)
        self.containers = {host: campaign.containers(host) for host in hosts}
        for job in jobs:
            campaign.finish(job)
        self.attempts = {job: campaign.wait_for_end(job) for job in jobs}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory, whole_fleet: Fleet) -> Iterator[Scenario]:
    campaign = Campaign(tmp_path_factory.mktemp("die"), whole_fleet)
    yield Scenario(campaign)
    campaign.close()
    whole_fleet.restore()


def test_an_engine_that_restarts_and_keeps_its_containers_changes_nothing(scenario: Scenario) -> None:
    assert len(scenario.attempts[scenario.kept]) == 1


def test_an_engine_that_ends_its_containers_is_an_infra_fault_and_the_knobs_stay_the_same(scenario: Scenario) -> None:
    first, second = scenario.attempts[scenario.ended]
    assert first.fault is not None and first.fault.kind is FaultKind.INFRA_FAULT
    assert (second.host, second.rung, second.asked) == ("pascal", None, first.asked)


def test_a_restarted_sshd_and_a_killed_controller_change_nothing(scenario: Scenario) -> None:
    assert len(scenario.attempts[scenario.login]) == 1


def test_no_line_is_lost_or_doubled(scenario: Scenario) -> None:
    for job in (scenario.kept, scenario.login):
        steps = scenario.campaign.steps(job, 1)
        assert steps == list(range(1, len(steps) + 1))
    assert len(scenario.campaign.steps(scenario.login, 1)) > scenario.alone


def test_each_attempt_has_one_container(scenario: Scenario) -> None:
    assert scenario.containers == {
        "ampere": {f"{scenario.kept}/1"},
        "pascal": {f"{scenario.ended}/2"},
        "turing": {f"{scenario.login}/1"},
    }
