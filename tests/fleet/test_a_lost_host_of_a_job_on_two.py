"""Tests a training on two hosts of three that share a folder, which loses a host twice and goes on without it.

First the host that leads loses its power: nothing but the other hosts can show the checkpoints. Then the other one is
cut off while its container runs on. No copy of a checkpoint is on the controller's machine. The scenario runs once, and
every test checks one result.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.paths import HostPaths
from tests.fleet.campaign import TRAININGS, Campaign
from tests.fleet.fleet import Fleet
from tests.fleet.shared_folder import sharing

pytestmark = [pytest.mark.long]
SCRIPT = "two_ranks_saving.py"
# So many steps, that there is a checkpoint.
STEPS = 2 * 7


class Losses:
    """The job, and what was seen on the hosts meanwhile."""

    def __init__(self, campaign: Campaign, shared: Path) -> None:
        self.campaign = campaign
        self.job = self._submit()
        campaign.control()
        self.first = self._wait_for(1)
        self.dark = campaign.fleet.hosts[self.first.host]
        self.dark.power_off()
        self.second = self._wait_for(2)
        self.after_power_loss = self._containers(self.second)
        self.dark.power_on()
        campaign.wait(lambda: not campaign.store.orphans())
        self.with_power = campaign.containers(self.dark.name)

        self.cut = campaign.fleet.hosts[self.second.members[0].host]
        self.cut.cut()
        self.third = self._wait_for(3)
        self.while_cut = self._containers(self.third) | {self.cut.name: campaign.containers(self.cut.name)}
        self.cut.reconnect()
        campaign.wait(lambda: not campaign.store.orphans())
        self.reconnected = campaign.containers(self.cut.name)

        steps = len(campaign.steps(self.job, 3))
        campaign.wait(lambda: len(campaign.steps(self.job, 3)) > steps)
        here = HostPaths("", campaign.store.store_id, str(shared))
        Path(here.job(self.job, self.third.residence), "finish").touch()
        self.attempts = campaign.wait_for_end(self.job)
        self.at_the_end = [campaign.containers(name) for name in campaign.fleet.hosts]

    def _submit(self) -> str:
        campaign, fields = self.campaign, {"run": f"python {SCRIPT}", "ranks": 1, "resources": {"nodes": 2}}
        (campaign.folder / "work-two").mkdir()
        shutil.copy(TRAININGS / SCRIPT, campaign.folder / "work-two")
        patience = {"recovery": {"host_lost_after": campaign.away_for_long()}, "checkpoint": {"mirror": "off"}}
        return campaign.submit("two", image=campaign.fleet.images["train"], **fields, **patience)

    def _wait_for(self, number: int) -> Attempt:
        self.campaign.wait(lambda: self.campaign.running(self.job, number, steps=STEPS))
        return self.campaign.last(self.job)

    def _containers(self, attempt: Attempt) -> dict[str, set[str]]:
        return {place.host: self.campaign.containers(place.host) for place in attempt.places}

    def stale(self, attempt: Attempt, host: str) -> str:
        """Return what became of the part of a lost attempt on a host."""
        begin = f"attempt {attempt.number} on {host}, given up while its host was away: "
        events = [event.data["because"] for event in self.campaign.store.events(self.job) if event.kind == "stale_gone"]
        (found,) = [because.removeprefix(begin) for because in events if because.startswith(begin)]
        return found


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory, whole_fleet: Fleet) -> Iterator[Losses]:
    with sharing(whole_fleet, [*whole_fleet.hosts]) as shared:
        campaign = Campaign(tmp_path_factory.mktemp("losses"), whole_fleet)
        try:
            yield Losses(campaign, shared)
        finally:
            campaign.close()
    whole_fleet.restore()


def hosts_of(attempt: Attempt) -> set[str]:
    return {place.host for place in attempt.places}


def test_it_moves_to_the_hosts_that_are_left_and_goes_on_from_the_shared_folder(losses: Losses) -> None:
    everywhere = {*losses.campaign.fleet.hosts}
    before, lost = (losses.first, losses.second), (losses.dark.name, losses.cut.name)
    for last, away, moved in zip(before, lost, (losses.second, losses.third), strict=True):
        assert hosts_of(moved) == everywhere - {away}
        assert moved.checkpoint_from == (last.host, last.residence) and moved.residence == last.residence + 1
        assert moved.resumed_from is not None and moved.planned_step is not None and moved.planned_step >= 5
        assert moved.because.endswith("; on hosts that answer")


def test_every_rank_of_an_attempt_makes_each_of_its_steps_once(losses: Losses) -> None:
    for attempt in losses.attempts:
        first = (attempt.planned_step or 0) + 1
        assert attempt.number == 1 or attempt.resumed_step == attempt.planned_step
        for rank in (0, 1):
            begin = f"[rank{rank}]: step="
            lines = losses.campaign.log(losses.job, attempt.number).splitlines()
            steps = [int(line.removeprefix(begin).split()[0]) for line in lines if line.startswith(begin)]
            assert steps and steps == list(range(first, first + len(steps)))


def test_what_the_lost_attempt_left_on_the_other_host_is_ended_before_the_next_begins(losses: Losses) -> None:
    assert losses.after_power_loss == {name: {f"{losses.job}/2"} for name in hosts_of(losses.second)}
    assert losses.stale(losses.first, losses.first.members[0].host) in (
        "it still ran and was stopped",
        "it had ended by itself",
    )


def test_a_host_that_has_power_again_runs_nothing_of_it(losses: Losses) -> None:
    assert losses.with_power == set()
    assert losses.stale(losses.first, losses.dark.name) == "it did not outlive its host"


def test_a_host_that_was_cut_off_ran_on_and_is_stopped_when_it_answers(losses: Losses) -> None:
    running = {name: {f"{losses.job}/3"} for name in hosts_of(losses.third)}
    assert losses.while_cut == running | {losses.cut.name: {f"{losses.job}/2"}}
    assert losses.reconnected == set()
    assert losses.stale(losses.second, losses.cut.name) == "it still ran and was stopped"


def test_it_succeeds_once_and_leaves_nothing(losses: Losses) -> None:
    assert [attempt.outcome and attempt.outcome.value for attempt in losses.attempts] == ["fault", "fault", "succeeded"]
    assert [attempt.host_lost for attempt in losses.attempts] == [True, True, False]
    assert losses.at_the_end == [set(), set(), set()] and losses.campaign.store.leases() == []
