"""An engine, sshd and the controller are killed while jobs run: each attempt goes on, or its end is told right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rung.jobs.model.fault import FaultKind
from tests.fleet.campaign import Campaign
from tests.fleet.fleet import Fleet


class Story:
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
def story(tmp_path_factory: pytest.TempPathFactory, whole_fleet: Fleet) -> Iterator[Story]:
    campaign = Campaign(tmp_path_factory.mktemp("die"), whole_fleet)
    yield Story(campaign)
    campaign.close()
    whole_fleet.restore()


def test_an_engine_that_is_restarted_over_its_containers_changes_nothing(story: Story) -> None:
    assert len(story.attempts[story.kept]) == 1


def test_an_engine_that_ends_its_containers_means_a_fault_of_the_machine_and_the_same_knobs_again(story: Story) -> None:
    first, second = story.attempts[story.ended]
    assert first.fault is not None and first.fault.kind is FaultKind.INFRA_FAULT
    assert (second.host, second.rung, second.asked) == ("pascal", None, first.asked)


def test_a_restarted_sshd_and_a_killed_controller_change_nothing(story: Story) -> None:
    assert len(story.attempts[story.login]) == 1


def test_no_line_is_lost_and_none_is_doubled_over_all_of_that(story: Story) -> None:
    for job in (story.kept, story.login):
        steps = story.campaign.steps(job, 1)
        assert steps == list(range(1, len(steps) + 1))
    assert len(story.campaign.steps(story.login, 1)) > story.alone


def test_there_is_one_copy_of_each(story: Story) -> None:
    assert story.containers == {
        "ampere": {f"{story.kept}/1"},
        "pascal": {f"{story.ended}/2"},
        "turing": {f"{story.login}/1"},
    }
