"""One controller and two hundred containers on three hosts: every line of each, in bounded memory and few threads."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rung.jobs.model.state import ENDED, JobState
from tests.fleet.campaign import Campaign
from tests.fleet.fleet import Fleet
from tests.fleet.host import ACCOUNT

# Slow: CI runs these after the others.
pytestmark = [pytest.mark.long, pytest.mark.sample]

JOBS = 200
# Two hundred starts on two busy cores; a condition that takes longer than this will never come.
PATIENCE = 600.0
# With a thread or a megabyte for each job the controller would exceed these limits.
MOST_THREADS = 64
MOST_MEGABYTES = 400
# Prints a numbered line every two seconds until the file `finish` exists; one file ends all jobs.
PRINTER = "i=0; while [ ! -e /all/finish ]; do i=$((i+1)); echo step $i loss 0.5; sleep 2; done; echo last line $i"


def count(campaign: Campaign, *states: JobState) -> int:
    """Return how many jobs are in these states; asked of the file itself, because loading 200 jobs takes time.

    None of them may fail on the way.
    """
    assert JobState.FAILED in states or count(campaign, JobState.FAILED) == 0, campaign.shown()
    marks = ",".join("?" * len(states))
    with closing(sqlite3.connect(campaign.home / "rung.db")) as store:
        query = f"SELECT count(*) FROM jobs WHERE state IN ({marks})"
        return int(store.execute(query, [state.value for state in states]).fetchone()[0])


def measured(pid: int) -> tuple[int, int]:
    """Return the threads of a process, and its memory in megabytes."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(rows["Threads"]), int(rows["VmRSS"].split()[0]) >> 10


def test_two_hundred_containers_are_followed_at_once_without_losing_a_line(campaign: Campaign, fleet: Fleet) -> None:
    folder = f"/home/{ACCOUNT}/all"
    for host in fleet.hosts.values():
        host.run("mkdir", "-p", folder)
    # Two hundred networks would take most of the time, and are another matter.
    fields = {"run": ["sh", "-c", PRINTER], "volumes": [f"{folder}:/all:ro"], "workdir": "work-all", "network": "none"}
    (campaign.folder / "work-all").mkdir()
    jobs = [campaign.submit(f"printer-{number}", **fields) for number in range(JOBS)]
    controller = campaign.control()

    campaign.wait(lambda: count(campaign, JobState.RUNNING) == JOBS, PATIENCE)
    threads, megabytes = measured(controller.pid)
    assert threads <= MOST_THREADS and megabytes <= MOST_MEGABYTES, (threads, megabytes)
    assert {len(campaign.attempts(job)) for job in jobs} == {1}

    for host in fleet.hosts.values():
        host.run("touch", f"{folder}/finish")
    campaign.wait(lambda: count(campaign, *ENDED) == JOBS, PATIENCE)
    assert {job.state for job in campaign.store.jobs()} == {JobState.SUCCEEDED}, campaign.shown()
    for job in jobs:
        steps = campaign.steps(job, 1)
        assert steps == list(range(1, len(steps) + 1))
        assert f"last line {len(steps)}" in campaign.log(job, 1)
