"""Tests hosts that lose power or stay away: the job goes on from its last healthy checkpoint, and runs only once.

There are two scenarios with two jobs each. Each scenario runs once, and every test checks one result. People are to be
told about the hosts, by a service that hangs while the first scenario runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.state import JobState
from tests.fleet.campaign import Campaign
from tests.fleet.fleet import Fleet
from tests.support.message_server import MessageServer, write_settings

MIRROR = ("", 0)
# Less than a send may take, so that its process is still there for the answer.
ANSWERS_WITHIN = 20.0


class HangingService(MessageServer):
    """A service that takes messages and answers to none of them until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go, self.over = threading.Event(), threading.Event()
        # Nobody hears the answer to a request that hung for too long, so it gets none.
        self.behave = lambda: 200 if self.let_go.wait(ANSWERS_WITHIN) or not self.over.wait() else 503

    @property
    def url(self) -> str:
        return f"{super().url}?rto=600"

    def close(self) -> None:
        self.let_go.set()
        self.over.set()


def assert_resumed(campaign: Campaign, job: str, attempt: Attempt) -> None:
    """Assert that an attempt resumed from a checkpoint: its log starts with the next step."""
    assert attempt.resumed_from is not None and attempt.planned_step
    assert attempt.resumed_step == attempt.planned_step
    steps = campaign.steps(job, attempt.number)
    assert steps[0] == attempt.planned_step + 1 and steps == list(range(steps[0], steps[0] + len(steps)))


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory, whole_fleet: Fleet) -> Iterator[Campaign]:
    made = Campaign(tmp_path_factory.mktemp("lost"), whole_fleet)
    yield made
    made.close()
    whole_fleet.restore()


@pytest.fixture(scope="module")
def service(campaign: Campaign) -> Iterator[HangingService]:
    made = HangingService()
    write_settings(campaign.home, {"lab": made.url}, events=["host_lost", "host_back"])
    with made.serving(), closing(made):
        yield made


class Away:
    """One host is without power for good, another is cut off and comes back after its job has moved."""

    def __init__(self, campaign: Campaign, service: HangingService) -> None:
        self.campaign, self.service, hosts = campaign, service, campaign.fleet.hosts
        away = campaign.away_for_long()
        patience = {"recovery": {"host_lost_after": away}, "checkpoint": {"mirror_every": 1}}
        self.cut = campaign.train("cut", "A100:1", "P100:1", **patience)
        campaign.control(NO_PROXY="127.0.0.1")
        campaign.wait(lambda: campaign.running(self.cut))
        # It requests no GPU, so it goes to a host where nothing runs yet.
        self.dark = campaign.train("dark", **patience)
        campaign.wait(lambda: campaign.running(self.dark))
        self.dark_host = campaign.last(self.dark).host
        for job in (self.cut, self.dark):
            campaign.wait(lambda job=job: "mirrored" in [event.kind for event in campaign.store.events(job)])
        hosts["ampere"].cut()
        hosts[self.dark_host].power_off()
        for job in (self.cut, self.dark):
            campaign.wait(lambda job=job: campaign.running(job, 2))
        self.asked_by_then, self.accepted_by_then = [*service.titles], [*service.accepted]
        self.leases = {lease.gpu: (lease.job_id, lease.attempt) for lease in campaign.store.leases()}
        self.still_running = campaign.containers("ampere")
        # Another job waits for the GPU of the host that is away.
        self.next = campaign.submit("next", "A100:1")
        hosts["ampere"].reconnect()
        campaign.wait(lambda: campaign.running(self.next))
        self.at_the_end = campaign.containers("ampere")
        self.stale = campaign.store.orphans()
        hosts[self.dark_host].power_on()
        campaign.wait(lambda: not campaign.store.orphans())
        self.after_power = campaign.containers(self.dark_host)
        for job in (self.cut, self.dark, self.next):
            campaign.finish(job)
        self.attempts = {job: campaign.wait_for_end(job) for job in (self.cut, self.dark, self.next)}
        service.let_go.set()
        campaign.wait(lambda: campaign.store.outbox_cursor() == campaign.store.last_event())
        campaign.wait(lambda: not campaign.store.outbox())


@pytest.fixture(scope="module")
def away(campaign: Campaign, service: HangingService) -> Away:
    return Away(campaign, service)


def test_a_job_whose_host_stays_away_resumes_on_another_host_from_the_mirrored_checkpoint(away: Away) -> None:
    for job, host in ((away.cut, "ampere"), (away.dark, away.dark_host)):
        lost, moved = away.attempts[job]
        assert (lost.host, lost.host_lost) == (host, True)
        assert lost.fault is not None and lost.fault.kind is FaultKind.INFRA_FAULT
        assert moved.host != host and moved.checkpoint_from == MIRROR
        assert f"on another host than {host}" in moved.because
        assert_resumed(away.campaign, job, moved)


def test_the_gpu_of_a_lost_attempt_stays_leased_until_its_host_is_back(away: Away) -> None:
    ampere, pascal = (away.campaign.fleet.hosts[name].gpu_uuid(0) for name in ("ampere", "pascal"))
    assert away.leases == {ampere: (away.cut, 1), pascal: (away.cut, 2)}


def test_the_stale_container_is_stopped_before_another_job_gets_its_gpu(away: Away) -> None:
    assert away.still_running == {f"{away.cut}/1"}
    assert away.at_the_end == {f"{away.next}/1"}
    gone = [event for event in away.campaign.store.events(away.cut) if event.kind == "stale_gone"]
    assert [event.data["because"] for event in gone] == [
        "attempt 1 on ampere, given up while its host was away: it still ran and was stopped"
    ]
    (leased,) = (event.at for event in away.campaign.store.events(away.next) if event.kind == "decided")
    assert gone[0].at < leased


def test_a_host_that_comes_back_from_a_power_loss_does_not_run_the_moved_job(away: Away) -> None:
    assert f"{away.dark}/1" not in away.after_power
    assert f"{away.dark}/2" not in away.after_power


def test_a_job_that_moved_succeeds_once(away: Away) -> None:
    for job in (away.cut, away.dark):
        assert [attempt.outcome.value for attempt in away.attempts[job]] == ["fault", "succeeded"]
    assert away.campaign.store.leases() == []


def test_people_are_told_once_that_a_host_is_lost_and_once_that_it_is_back(away: Away) -> None:
    told = [message.partition("\n")[0] for message in away.service.accepted]
    hosts = (("cut", "ampere"), ("dark", away.dark_host))
    back = {f"{name}: {host} answers again; the job had left it" for name, host in hosts}
    lost = {title for title in told if title not in back}
    assert len(told) == 4 and back < set(told)
    assert sorted(title.partition(":")[0] for title in lost) == ["cut", "dark"]
    assert all(host in title for (_, host), title in zip(hosts, sorted(lost), strict=True))


def test_a_service_that_hangs_holds_no_move_to_another_host_back(away: Away) -> None:
    # Both jobs had been relaunched and had made steps while the first message still hung.
    assert away.asked_by_then and len(set(away.asked_by_then)) == 1 and away.accepted_by_then == []


class Back:
    """One host loses its power and comes back; on another a job is killed twice and moves with its checkpoint."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign, hosts = campaign, campaign.fleet.hosts
        self.dark, self.killed = campaign.train("again", "TITANRTX:1"), campaign.train("killed", "A100:1", "P100:1")
        for job in (self.dark, self.killed):
            campaign.wait(lambda job=job: campaign.running(job, steps=12))
        hosts["turing"].power_off()
        self._kill(1)
        campaign.wait(lambda: "is unreachable since" in campaign.job(self.dark).reason)
        self.state_without_power = campaign.job(self.dark).state
        hosts["turing"].power_on()
        campaign.wait(lambda: campaign.running(self.killed, 2, steps=7))
        self._kill(2)
        campaign.wait(lambda: campaign.running(self.dark, 2))
        campaign.wait(lambda: campaign.running(self.killed, 3))
        self.copies = campaign.containers("turing")
        for job in (self.dark, self.killed):
            campaign.finish(job)
        self.attempts = {job: campaign.wait_for_end(job) for job in (self.dark, self.killed)}

    def _kill(self, number: int) -> None:
        labels = (f"label=rung.job={self.killed}", f"label=rung.attempt={number}")
        ampere = self.campaign.fleet.hosts["ampere"]
        ids = ampere.docker("ps", "--quiet", *(word for label in labels for word in ("--filter", label))).split()
        ampere.docker("kill", *ids)


@pytest.fixture(scope="module")
def back(campaign: Campaign, away: Away) -> Back:
    return Back(campaign)


def test_after_a_power_loss_the_job_resumes_on_the_same_host(back: Back) -> None:
    assert back.state_without_power is JobState.RUNNING
    lost, again = back.attempts[back.dark]
    assert (again.host, again.residence, again.checkpoint_from) == ("turing", lost.residence, None)
    assert not lost.host_lost
    assert_resumed(back.campaign, back.dark, again)
    assert back.copies == {f"{back.dark}/2"}


def test_a_job_that_is_killed_twice_on_a_host_moves_with_its_checkpoint(back: Back) -> None:
    first, second, third = back.attempts[back.killed]
    assert [each.host for each in (first, second, third)] == ["ampere", "ampere", "pascal"]
    assert "on another host" not in second.because and "on another host than ampere" in third.because
    assert third.checkpoint_from == ("ampere", 1) and third.residence == 2
    assert_resumed(back.campaign, back.killed, second)
    assert_resumed(back.campaign, back.killed, third)
