"""Measures the time from a fault to the next container on hosts over SSH, alone and beside other jobs.

python -m tests.bench relaunch [--faults=60] [--beside=200] [--where=fleet|gpu]

The hosts are those of a fleet, or this machine alone, which then needs an NVIDIA GPU (`--where=gpu`). The jobs write
the times themselves; all hosts share one clock. The peer is `docker run` of the same image over a plain ssh whose
connection is open already, in the same run: what the engine itself needs.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rung.jobs.model.event import EventKind
from rung.jobs.model.paths import HomePaths
from rung.runner.state.home import make_home
from tests.bench import hosts
from tests.fleet.campaign import Campaign, Hosts
from tests.fleet.fleet import Fleet
from tests.gpu.host import GpuHost

# The longest wait for all recoveries, in seconds.
PATIENCE = 900.0
PEERS = 15
# Fails with a NaN once, and says when that was and when it began again.
FAILING = """
read up rest < /proc/uptime
if [ -e /rung/job/again ]; then echo began at $up; echo step 1 loss 0.5; exit 0; fi
: > /rung/job/again
echo step 1 loss 1.0
sleep 1
read up rest < /proc/uptime
echo failed at $up
i=1; while [ $i -lt 40 ]; do i=$((i+1)); echo step $i loss nan; done
sleep 1000
"""
FIELDS: dict[str, Any] = {
    "run": ["sh", "-c", FAILING, "sh", "{lr}"],
    "knobs": {"lr": 0.1},
    "recovery": {"ladder": ["lower_lr"], "trials": "off"},
    "network": "none",
    "workdir": "work",
}


def main(options: Sequence[str] = ()) -> None:
    asked = {word.partition("=")[0]: word.partition("=")[2] for word in options}
    faults, where = int(asked.get("--faults", "60")), asked.get("--where", "fleet")
    if where not in PLACES:
        sys.exit(f"rung: --where is {' or '.join(PLACES)}, not {where}")
    print("From a fault to the next container, over SSH; the peer: `docker run` over an ssh that is connected")
    for beside in dict.fromkeys((0, int(asked.get("--beside", "200")))):
        with PLACES[where]() as found, tempfile.TemporaryDirectory() as folder:
            campaign = Campaign(Path(folder), found)
            make_home(HomePaths(campaign.home))
            try:
                hosts.start(campaign, beside, **BESIDE.get(where, {}))
                print(f"  beside {beside:3} jobs: {measured(campaign, faults)}", flush=True)
            finally:
                campaign.close()


@contextmanager
def fleet() -> Iterator[Hosts]:
    with Fleet.claimed() as found:
        yield found.up()


@contextmanager
def gpu() -> Iterator[Hosts]:
    with GpuHost().up() as host:
        yield host


PLACES = {"fleet": fleet, "gpu": gpu}
# More fields of the jobs beside: the engine of a machine with a GPU makes no networks.
BESIDE: dict[str, dict[str, Any]] = {"gpu": {"network": "none"}}


def measured(campaign: Campaign, faults: int) -> str:
    chance, names, peers = random.Random(20), list[str](), list[float]()
    for number in range(faults):
        names.append(campaign.submit(f"failing-{number}", **FIELDS))
        if number % max(1, faults // PEERS) == 0:
            peers.append(peer(campaign))
        # So that not all of them meet the controller at the same point of its loop.
        time.sleep(0.5 + chance.random())
    campaign.wait(lambda: all("began at" in campaign.log(name, 2) for name in names), PATIENCE)
    failed = [time_in(campaign.log(name, 1), "failed") for name in names]
    issued = [decided_at(campaign, name) for name in names]
    began = [time_in(campaign.log(name, 2), "began") for name in names]
    engine, starts = median(peers), since(issued, began)
    return (
        f"{shown(since(failed, began))}, {faults} faults\n"
        f"    the relaunch is issued after {shown(since(failed, issued))}, and takes {shown(starts)} from there;\n"
        f"    the engine itself takes {engine:.2f} s, so a container comes {median(starts) - engine:.2f} s after that"
    )


def since(before: Sequence[float], after: Sequence[float]) -> list[float]:
    return [late - early for early, late in zip(before, after, strict=True)]


def shown(times: Sequence[float]) -> str:
    return f"p50 {median(times):.2f} s, p99 {quantiles(times, n=100)[98]:.2f} s"


def decided_at(campaign: Campaign, name: str) -> float:
    """Return when the relaunch was decided, which is written right before it is done, by the clock of the jobs."""
    # The first decision is where the job is launched at all.
    at = [event.at for event in campaign.store.events(name) if event.kind == EventKind.DECIDED][-1]
    return at - time.time() + time.clock_gettime(time.CLOCK_BOOTTIME)


def time_in(log: str, word: str) -> float:
    return float(log.partition(f"{word} at ")[2].split()[0])


def peer(campaign: Campaign) -> float:
    """Return how long the engine of a host takes from the call to the first line of a container."""
    host = next(iter(campaign.fleet.hosts))
    script = "read up rest < /proc/uptime; echo $up"
    run = f"docker run --rm --init --network none {campaign.fleet.images['tiny']} sh -c '{script}'"
    command = ["ssh", "-F", str(campaign.fleet.ssh_config), host, f"{script}; {run}"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(printed[1]) - float(printed[0])


if __name__ == "__main__":
    main()
