"""Tests trials on real hosts in trouble: a killed controller, a cancelled job and a lost host.

Three jobs run at the same time, on one host each: the one whose host has three GPUs has its trials side by side. The
scenario runs once, and every test checks one result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from rung.jobs.job import Attempt, main_line
from rung.jobs.model.paths import HostPaths
from rung.jobs.model.state import JobState
from tests.fleet.campaign import Campaign
from tests.fleet.fleet import Fleet
from tests.fleet.host import ACCOUNT

# Slow: CI runs these after the others.
pytestmark = [pytest.mark.long, pytest.mark.sample]

# NaN at step 21 without clipping and with the first lr. Every rung cures it, and clipping learns fastest. The trial of
# a tenth of the lr waits at step 50, and whatever is not stopped waits at step 150, so that no test depends on speed.
SCRIPT = """
[ $# = 2 ] || set -- "$1" off
echo "it began"
echo text > "$RUNG_CHECKPOINT_DIR/note"
case "$1 $2" in "0.01 off") fall=2 ;; "0.0001 off") fall=2 ;; "0.001 off") fall=4 ;; *) fall=8 ;; esac
i=0
while [ $i -lt 200 ]; do
    i=$((i+1))
    [ "$i $1 $2" != "21 0.01 off" ] || { echo "step 21 loss nan"; exit 1; }
    [ "$i $1" != "50 0.001" ] || while [ ! -e /rung/job/go ]; do sleep 0.1; done
    [ $i != 150 ] || while [ ! -e /rung/job/finish ]; do sleep 0.1; done
    loss=$((2900-fall*i))
    printf 'step %d loss %d.%03d\\n' $i $((loss/1000)) $((loss%1000))
done
"""
FIELDS = {
    "run": ["sh", "-c", SCRIPT, "job", "{lr}", "{clip}"],
    "knobs": {"lr": 0.01, "clip": "off"},
    "checkpoint": {"every": 100000},
}
# The trials and the losses they come to at step 133: in a row two are enough, side by side all of them run.
IN_A_ROW = {"lower_lr x0.1": 2.456, "raise_clip": 2.012}
SIDE_BY_SIDE = {"lower_lr x0.1": 2.456, "lower_lr x0.01": 2.678, "raise_clip": 2.012}
# The attempt that waits: the first trial. The last of those side by side.
WAITING, LAST = 2, 4


class Scenario:
    """A controller that is killed in the middle of trials and after them, a cancelled job, and a lost host."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        campaign.fleet.hosts["ampere"].set_gpus(3)
        fields = FIELDS | {"recovery": {"trials": "on", "host_lost_after": campaign.away_for_long()}}
        self.lost = campaign.submit("lost", "TITANRTX:1", "P100:1", **fields)
        self.cancelled = campaign.submit("cancelled", "P100:1", **fields)
        campaign.control()
        campaign.wait(lambda: all(campaign.attempts(job) for job in (self.lost, self.cancelled)))
        # From now on nobody waits for a GPU.
        self.killed = campaign.submit("killed", "A100:1", **fields)
        self.jobs = (self.killed, self.lost, self.cancelled)
        campaign.wait(lambda: all(self.waits(job, WAITING) for job in self.jobs))
        campaign.wait(lambda: self.waits(self.killed, LAST, step=149))
        self.before, self.leased = self.containers(), self.leases()
        campaign.kill_controller()
        campaign.control()
        campaign.rung("cancel", self.cancelled)
        campaign.fleet.hosts["turing"].cut()
        self.go(self.killed, WAITING)
        campaign.wait(lambda: "trials" in self.kinds(self.killed))
        # The folders of the losers are left to the next controller.
        campaign.kill_controller()
        campaign.control()
        campaign.wait(lambda: campaign.job(self.cancelled).ended)
        campaign.wait(lambda: self.waits(self.lost, self.newest_on("pascal", self.lost)))
        self.go(self.lost, self.newest_on("pascal", self.lost))
        campaign.wait(lambda: "trials" in self.kinds(self.lost))
        campaign.fleet.hosts["turing"].reconnect()
        campaign.wait(lambda: not campaign.store.orphans())
        for job in (self.killed, self.lost):
            campaign.wait(lambda job=job: self.is_tidy(job))
        self.during = self.containers()
        for job in (self.killed, self.lost):
            campaign.finish(job)
            campaign.wait_for_end(job)
        campaign.wait(lambda: self.is_tidy(self.cancelled))
        self.attempts = {job: campaign.attempts(job) for job in self.jobs}

    def waits(self, job: str, number: int, step: int = 49) -> bool:
        """Return whether a trial waits after this step, and the store has it as started."""
        assert not self.campaign.job(job).ended, self.campaign.shown()
        started = [each for each in self.campaign.attempts(job) if each.number == number and each.started_at]
        return bool(started) and self.campaign.steps(job, number)[-1:] == [step]

    def newest_on(self, host: str, job: str) -> int:
        """Return the number of a job's newest attempt on a host; 0: none is there yet."""
        return max((each.number for each in self.campaign.attempts(job) if each.host == host), default=0)

    def go(self, job: str, number: int) -> None:
        """Let the trial that waits go on."""
        attempt = self.campaign.attempts(job)[number - 1]
        folder = HostPaths(f"/home/{ACCOUNT}", self.campaign.store.store_id).job(job, attempt.residence)
        self.campaign.fleet.hosts[attempt.host].run("touch", f"{folder}/go")

    def leases(self) -> set[str]:
        return {f"{lease.job_id}/{lease.attempt}" for lease in self.campaign.store.leases()}

    def kinds(self, job: str) -> list[str]:
        return [event.kind for event in self.campaign.store.events(job)]

    def is_tidy(self, job: str) -> bool:
        trials = [each.trial for each in self.campaign.attempts(job) if each.is_trial]
        return all(trial.folder_removed for trial in trials if trial is not None)

    def containers(self) -> set[str]:
        return {each for host in self.campaign.fleet.hosts for each in self.campaign.containers(host)}

    def folders(self, job: str) -> dict[str, set[int]]:
        """Return the folders of a job with what it has saved, as the disks of the hosts show them."""
        store, hosts = self.campaign.store.store_id, self.campaign.fleet.hosts
        found = {name: host.work / f".rung/{store}/jobs/{job}/stays" for name, host in hosts.items()}
        return {name: {int(each.name) for each in path.iterdir()} for name, path in found.items() if path.is_dir()}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory, whole_fleet: Fleet) -> Iterator[Scenario]:
    campaign = Campaign(tmp_path_factory.mktemp("trials"), whole_fleet)
    yield Scenario(campaign)
    campaign.close()
    whole_fleet.restore()


def labels(attempts: list[Attempt]) -> list[str]:
    return [each.trial.candidate.label for each in attempts if each.trial is not None]


def assert_decided(scenario: Scenario, job: str, attempts: list[Attempt], expected: dict[str, float]) -> None:
    """Assert that clipping won the trials, and that its run went on to the end."""
    assert labels(attempts) == list(expected)
    winner = attempts[-1]
    assert winner.trial is not None and winner.trial.won and winner.trial.goes_on
    assert (winner.rung, winner.furthest_step) == ("raise_clip", 200)
    assert scenario.campaign.job(job).state is JobState.SUCCEEDED
    (table,) = (event.data for event in scenario.campaign.store.events(job) if event.kind == "trials")
    assert [row["verdict"] for row in table["table"]] == [*["survived"] * (len(expected) - 1), "won"]
    # The same losses as in any other run: the medians over the last third of the window, to step 133.
    assert [row["loss"] for row in table["table"]] == pytest.approx(list(expected.values()), abs=0.01)


def test_no_attempt_runs_twice_and_each_has_its_own_gpu(scenario: Scenario) -> None:
    one_each = {f"{job}/{WAITING}" for job in scenario.jobs}
    # The last trial runs beside the one that waits, and the one between them may be over.
    beside = one_each | {f"{scenario.killed}/{LAST}"}
    for found in (scenario.before, scenario.leased):
        assert beside <= found <= beside | {f"{scenario.killed}/{WAITING + 1}"}
    assert scenario.during == {f"{job}/{scenario.attempts[job][-1].number}" for job in (scenario.killed, scenario.lost)}
    for job in scenario.jobs:
        count = Counter((event.kind, event.attempt) for event in scenario.campaign.store.events(job))
        for attempt in scenario.attempts[job]:
            assert [count[kind, attempt.number] for kind in ("decided", "started", "ended")] == [1, 1, 1]
            assert scenario.campaign.log(job, attempt.number).count("it began") == 1


def test_a_controller_killed_in_the_middle_of_trials_comes_to_the_same_decision(scenario: Scenario) -> None:
    attempts = scenario.attempts[scenario.killed]
    assert_decided(scenario, scenario.killed, attempts, SIDE_BY_SIDE)
    assert [each.residence for each in attempts] == [1, 2, 3, 4]
    assert len({each.gpus[0].uuid for each in attempts[1:]}) == 3, "they ran side by side"
    assert scenario.folders(scenario.killed) == {"ampere": {1, 4}}


def test_a_job_cancelled_in_the_middle_of_trials_leaves_no_container_and_no_folder(scenario: Scenario) -> None:
    attempts = scenario.attempts[scenario.cancelled]
    assert scenario.campaign.job(scenario.cancelled).state is JobState.CANCELLED
    assert labels(attempts) == ["lower_lr x0.1"] and attempts[-1].outcome.value == "cancelled"
    assert scenario.folders(scenario.cancelled) == {"pascal": {1}}


def test_trials_on_a_lost_host_begin_anew_elsewhere_and_leave_nothing_on_either(scenario: Scenario) -> None:
    attempts = scenario.attempts[scenario.lost]
    first, then = ([each for each in attempts if each.host == host] for host in ("turing", "pascal"))
    assert attempts == [*first, *then]
    assert first[-1].host_lost and labels(first) == ["lower_lr x0.1"]
    assert_decided(scenario, scenario.lost, then, IN_A_ROW)
    assert scenario.folders(scenario.lost) == {"turing": {1}, "pascal": {main_line(attempts)[-1].residence}}


def test_nothing_is_leased_and_no_container_is_left(scenario: Scenario) -> None:
    assert scenario.campaign.store.leases() == []
    assert scenario.containers() == set()
    for host in scenario.campaign.fleet.hosts.values():
        assert host.docker("ps", "--all", "--quiet", "--filter", "label=rung.job") == ""
