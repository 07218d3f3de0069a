"""Measures following many containers over SSH: time, memory and delay, beside `docker logs -f` over plain ssh.

Both read the same lines in the same run. Each line holds the time at which it was written; all hosts share that clock.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

from rung.jobs.model.state import JobState
from tests import pace
from tests.fleet.campaign import Campaign
from tests.fleet.fleet import Fleet

JOBS = 200
SECONDS = 30.0
# The longest wait until all jobs run.
START_SECONDS = 600.0
# For how many containers delays are measured, ours and the peer's.
WATCHED = 20
PRINTER = (
    "i=0; while [ ! -e /all/finish ]; do read up rest < /proc/uptime; i=$((i+1)); echo step $i loss 0.5 at $up; "
    "sleep 1; done"
)
TICKS = os.sysconf("SC_CLK_TCK")


def main(options: Sequence[str] = ()) -> None:
    jobs = next((int(word.partition("=")[2]) for word in options if word.startswith("--jobs=")), JOBS)
    with Fleet.claimed() as fleet, tempfile.TemporaryDirectory() as folder:
        fleet.up()
        campaign = Campaign(Path(folder), fleet)
        try:
            names = start(campaign, jobs)
            measure(campaign, names)
        finally:
            campaign.close()


def start(campaign: Campaign, jobs: int, **more: Any) -> list[str]:
    """Start a controller and jobs that print a line a second, with more fields of the job file if needed."""
    hosts = list(campaign.fleet.hosts.values())
    folder = f"{hosts[0].home}/all"
    for host in hosts:
        host.run("mkdir", "-p", folder)
    (campaign.folder / "work").mkdir()
    fields = {"run": ["sh", "-c", PRINTER], "volumes": [f"{folder}:/all:ro"], "workdir": "work", **more}
    names = [campaign.submit(f"printer-{number}", **fields) for number in range(jobs)]
    campaign.control()
    # Reading every job is work, so it is done only every few seconds.
    pace.until(
        lambda: sum(job.state is JobState.RUNNING for job in campaign.store.jobs()) == jobs, START_SECONDS, every=5
    )
    return names


def measure(campaign: Campaign, names: Sequence[str]) -> None:
    pid = campaign._controllers[-1].pid
    logs = [campaign.home / "jobs" / name / "attempts" / "1" / "log" for name in names]
    watched = names[:: max(1, len(names) // WATCHED)]
    peers = [Peer(campaign, name) for name in watched]
    # The measurement starts when every peer has opened its session.
    campaign.wait(lambda: all(peer.lines for peer in peers))
    before, cpu = sum(map(line_count, logs)), cpu_seconds(pid)
    for peer in peers:
        peer.delays.clear()
    delays = list(watch_files([logs[names.index(name)] for name in watched], SECONDS))
    spent, lines = cpu_seconds(pid) - cpu, sum(map(line_count, logs)) - before
    peer_cpu = sum(cpu_seconds(peer.process.pid) for peer in peers)
    peer_lines = sum(peer.lines for peer in peers)
    peer_memory = sum(memory(peer.process.pid) for peer in peers) / len(peers)
    theirs = [delay for peer in peers for delay in peer.delays]
    for peer in peers:
        peer.process.kill()
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    print(
        f"Following {len(names)} containers on {len(campaign.fleet.hosts)} hosts, {lines / SECONDS:.0f} lines a second"
    )
    print(f"  {'':26} {'Rung':>10} {'docker logs -f over ssh':>26}")
    print(f"  {'CPU seconds, 10,000 lines':26} {1e4 * spent / lines:10.2f} {1e4 * peer_cpu / peer_lines:26.2f}")
    print(f"  {'MB a job':26} {memory(pid) / len(names):10.2f} {peer_memory:26.2f}")
    print(f"  {'ms from written to seen':26} {shown(delays):>10} {shown(theirs):>26}  (p50 / p99)")
    print(f"  one controller: {threads} threads, {memory(pid):.0f} MB; over ssh: a process for each, on each side")


class Peer:
    """`docker logs -f` of one container over a plain ssh, read as fast as it comes."""

    def __init__(self, campaign: Campaign, name: str) -> None:
        host = campaign.last(name).host
        words = ["docker", "ps", "--quiet", "--filter", f"label=rung.job={name}"]
        container = campaign.fleet.hosts[host].run(*words).strip()
        command = ["ssh", "-F", str(campaign.fleet.ssh_config), host, "docker", "logs", "-f", "--tail", "0", container]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.delays: list[float] = []
        self.lines = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines += 1
            self.delays.append(delay_of(line))


def watch_files(paths: Sequence[Path], seconds: float) -> Iterator[float]:
    """Yield the delay of every line that these files gain."""
    files = [path.open(encoding="utf-8") for path in paths]
    for file in files:
        file.seek(0, os.SEEK_END)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for file in files:
            yield from (delay_of(line) for line in file if " at " in line and line.endswith("\n"))
        time.sleep(0.005)
    for file in files:
        file.close()


def delay_of(line: str) -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - float(line.rpartition(" at ")[2])


def line_count(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines())
    return int(rows["VmRSS"].split()[0]) / 1024


def shown(delays: Sequence[float]) -> str:
    cuts = quantiles(delays, n=100)
    return f"{1000 * cuts[49]:.0f} / {1000 * cuts[98]:.0f}"


if __name__ == "__main__":
    main()
