"""Tests one training on two hosts that share a folder: a rank on each, and both end together, whatever ends one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.state import JobState
from tests.fleet.campaign import Campaign
from tests.fleet.fleet import Fleet
from tests.fleet.shared_folder import sharing

pytestmark = [pytest.mark.long, pytest.mark.sample]
TRAININGS = Path(__file__).parents[1] / "flow" / "trainings"
HOSTS = ("ampere", "turing")


@pytest.fixture
def campaign(tmp_path: Path, fleet: Fleet) -> Iterator[Campaign]:
    """Return jobs on a fleet of which two hosts are listed with one shared folder."""
    with sharing(fleet, HOSTS):
        made = Campaign(tmp_path, fleet)
        yield made
        made.close()


def submit(campaign: Campaign, script: str, words: str = "", **fields: object) -> str:
    (campaign.folder / "work-two").mkdir()
    shutil.copy(TRAININGS / script, campaign.folder / "work-two")
    common = {"image": campaign.fleet.images["train"], "run": f"python {script} {words}", "ranks": 1}
    return campaign.submit("two", **common, resources={"nodes": 2}, **fields)


def containers(campaign: Campaign) -> list[set[str]]:
    return [campaign.containers(name) for name in HOSTS]


def test_a_bad_number_in_the_rank_of_the_second_host_is_one_fault_and_is_cured_once(campaign: Campaign) -> None:
    job = submit(
        campaign,
        "two_ranks.py",
        "--flaw range --bad-rank 1",
        knobs={"mode": "zero-edit"},
        checkpoint={"by": "rung", "every": 5},
        recovery={"trials": "off"},
    )
    campaign.control()
    first, second = campaign.wait_for_end(job)
    assert {place.host for place in first.places} == {place.host for place in second.places} == set(HOSTS)
    assert first.fault is not None and first.fault.kind == "nan_loss" and first.fault.replay["rank"] == "1"
    assert len([event for event in campaign.store.events(job) if event.kind == "fault"]) == 1
    assert second.rung == "fp32_modules" and (second.resumed_step, second.furthest_step) == (10, 24)
    for rank in (0, 1):
        assert campaign.log(job, 2).count(f"[rank{rank}]: step=14 loss=") == 1
    assert containers(campaign) == [set(), set()]


def test_it_runs_once_on_each_whatever_ends_a_controller_or_one_of_its_containers(campaign: Campaign) -> None:
    job = submit(campaign, "two_ranks_steady.py")
    campaign.control()
    # The first container is there, so the controller is in the middle of the start.
    campaign.wait(lambda: any(containers(campaign)))
    campaign.kill_controller()
    campaign.control()
    campaign.wait(lambda: campaign.running(job, 1, steps=2))
    assert containers(campaign) == [{f"{job}/1"}, {f"{job}/1"}]
    kill_second(campaign, campaign.last(job))
    campaign.wait(lambda: campaign.running(job, 2, steps=2))
    assert containers(campaign) == [{f"{job}/2"}, {f"{job}/2"}]
    first, second = campaign.attempts(job)
    assert first.fault is not None and first.fault.kind in ("infra_fault", "comm_fault"), first.fault
    campaign.rung("cancel", job)
    assert campaign.wait_for_end(job, JobState.CANCELLED) and containers(campaign) == [set(), set()]
    assert campaign.store.orphans() == []
    for number in (first.number, second.number):
        steps = [line for line in campaign.log(job, number).splitlines() if line.startswith("[rank1]: step=")]
        assert len(steps) == len(set(steps)) > 1


def kill_second(campaign: Campaign, attempt: Attempt) -> None:
    """Kill the container of the host that does not lead, as somebody else on that host could."""
    host = campaign.fleet.hosts[attempt.members[0].host]
    host.docker("kill", *host.docker("ps", "--quiet", "--filter", f"label=rung.job={attempt.job_id}").split())
