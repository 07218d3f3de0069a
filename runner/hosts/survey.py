"""Surveys a host: its GPUs, disks, engine and who uses them. It changes nothing and decides nothing.

Two short scripts run on the host, and the engine is asked through its socket. Every answer is treated as hostile.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from rung.jobs.model.engine import PlacedBy
from rung.jobs.model.errors import EngineError, HostError, HostRefused
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import Host
from rung.jobs.model.terminal_text import clean
from rung.jobs.site.partitions import Partition
from rung.runner.hosts.engine_facts import EngineFacts, ask_engine
from rung.runner.hosts.health import Health, parse_health
from rung.runner.hosts.nvidia_smi import GPU_QUERY, USER_QUERY, GpuUser, parse_gpus, parse_users
from rung.runner.hosts.site_survey import ask_site
from rung.runner.seams.remote import Remote

AT_ONCE = 32
MAX_LINES = 1000
MAX_TEXT = 500
FACT_SECONDS = 10.0
# Without persistence mode a driver first wakes every GPU, which takes seconds each.
GPU_SECONDS = 30.0
# The health script waits up to a minute for a container that lists the GPUs.
HEALTH_SECONDS = 120.0

FACTS = """
echo "time $(date +%s)"
echo "user $(id -un)"
disk() {
  df -Pk "$2" 2>/dev/null | tail -n 1 | sed "s/^/$1 /"
}
disk home "$HOME"
if [ -d /var/lib/docker ]; then disk engine /var/lib/docker; else disk engine /; fi
if [ ! -S "$1" ]; then echo "socket missing"
elif [ -r "$1" ] && [ -w "$1" ]; then echo "socket open"
else echo "socket denied"; fi
for program in dockerd podman; do
  PATH="$PATH:/usr/sbin:/sbin:/usr/local/sbin" command -v "$program" >/dev/null 2>&1 && echo "program $program"
done
echo "end"
"""
# Each line of the last part is a process id and its control groups, which contain the id of its container.
GPUS = f"""
command -v nvidia-smi >/dev/null 2>&1 || exit 127
{shlex.join(GPU_QUERY)} || exit 1
echo "--"
users=$({shlex.join(USER_QUERY)})
printf '%s\\n' "$users"
echo "--"
printf '%s\\n' "$users" | while IFS=', ' read -r uuid pid rest; do
  case $pid in ''|*[!0-9]*) ;; *) printf '%s ' "$pid"; tr '\\n' ' ' <"/proc/$pid/cgroup"; echo ;; esac
done 2>/dev/null
exit 0
"""
PART = re.compile(r"^--\n", re.MULTILINE)
CONTAINER = re.compile(r"[0-9a-f]{64}")
NUMBER = re.compile(r"[0-9]{1,12}")
DISK = re.compile(r"(home|engine) .* ([0-9]{1,18}) +([0-9]{1,18}) +([0-9]{1,18}) +[0-9]+% (/.*)")


@dataclass(frozen=True)
class Disk:
    """A disk with the engine's images and containers, or only with our home folder."""

    mount: str
    free: int
    total: int
    engine: bool = False


@dataclass(frozen=True)
class GpuState:
    """A GPU, the job that uses it, and the processes on it that are not ours."""

    gpu: Gpu
    job: str | None = None
    foreign_processes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The survey of one host. `away`: why there is none; `refused`: only a person can fix that."""

    host: Host
    away: str = ""
    refused: bool = False
    engine: str = ""
    engine_trouble: str = ""
    user: str = ""
    socket: str = ""  # open, denied, missing
    programs: tuple[str, ...] = ()
    disks: tuple[Disk, ...] = ()
    clock_skew: float = 0.0
    gpus: tuple[GpuState, ...] = ()
    gpu_troubles: tuple[str, ...] = ()
    driver_missing: bool = False
    health: tuple[Health, ...] = ()
    # How many GPUs of each type the nodes of a cluster have.
    site_gpus: tuple[tuple[str, int], ...] = ()
    partitions: tuple[Partition, ...] = ()


def survey_all(
    hosts: Iterable[Host], remote: Callable[[str], Remote], now: Callable[[], float], ask: Sequence[str] = ()
) -> list[Report]:
    """Survey all hosts at the same time; an unreachable one does not delay the others.

    `ask` is the command for the health script; without it, the script is not run.
    """
    listed = list(hosts)
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(listed)))) as pool:
        return list(pool.map(lambda host: _with_health(survey(host, remote(host.name), now), remote, ask), listed))


def survey(host: Host, remote: Remote, now: Callable[[], float]) -> Report:
    report = Report(host)
    try:
        report = _facts(report, remote, now)
        if host.engine.placed_by is PlacedBy.SITE:
            return _site(report, remote)
        engine = EngineFacts("", {})
        try:
            engine = ask_engine(remote, host.engine_socket)
        except EngineError as error:
            report = replace(report, engine_trouble=str(error))
        return _gpus(replace(report, engine=engine.version), remote, engine.jobs)
    except (EngineError, HostError) as error:
        return replace(report, away=str(error), refused=isinstance(error, HostRefused))


def _site(report: Report, remote: Remote) -> Report:
    try:
        facts = ask_site(remote)
    except EngineError as error:
        return replace(report, engine_trouble=str(error))
    return replace(report, engine=facts.version, site_gpus=facts.gpus, partitions=facts.partitions)


def _with_health(report: Report, remote: Callable[[str], Remote], ask: Sequence[str]) -> Report:
    if report.away or not ask or report.host.engine.placed_by is PlacedBy.SITE:
        return report
    try:
        ran = remote(report.host.name).run(list(ask), timeout=HEALTH_SECONDS)
    except (EngineError, HostError) as error:
        why = str(error).removeprefix(f"{report.host.name}: ")
        return replace(report, health=(Health("bad", "health", f"its health script does not answer: {why}"),))
    return replace(report, health=parse_health(ran.out.decode("utf-8", "replace")))


def _facts(report: Report, remote: Remote, now: Callable[[], float]) -> Report:
    before = now()
    ran = remote.run(["sh", "-c", FACTS, "sh", report.host.engine_socket], timeout=FACT_SECONDS)
    return parse_facts(report, ran.out.decode("utf-8", "replace"), before, now())


def parse_facts(report: Report, text: str, before: float, after: float) -> Report:
    """Add the host's facts to its report; our clock was read before and after."""
    lines = [clean(line[:MAX_TEXT]) for line in text.splitlines()[:MAX_LINES]]
    facts = {key: value for key, _, value in (line.partition(" ") for line in lines)}
    programs = tuple(line.removeprefix("program ") for line in lines if line.startswith("program "))
    found = [match for match in map(DISK.fullmatch, lines) if match]
    # The engine's line comes last and wins for a disk with both.
    disks = {one[5]: Disk(one[5], int(one[4]) << 10, int(one[2]) << 10, one[1] == "engine") for one in found}
    clock = facts.get("time", "")
    # The host read its clock in between, to the whole second.
    skew = max(before - 1 - int(clock), int(clock) - after, 0.0) if NUMBER.fullmatch(clock) else 0.0
    return replace(
        report,
        user=facts.get("user", ""),
        socket=facts.get("socket", ""),
        programs=programs,
        disks=tuple(disks.values()),
        clock_skew=skew,
    )


def _gpus(report: Report, remote: Remote, jobs: Mapping[str, str]) -> Report:
    try:
        ran = remote.run(["sh", "-c", GPUS], timeout=GPU_SECONDS)
    except EngineError:
        return replace(report, gpu_troubles=(f"nvidia-smi does not answer in {GPU_SECONDS:g} s: the driver hangs",))
    if ran.code == 127:
        return replace(report, driver_missing=True)
    output = (ran.out or ran.err).decode("utf-8", "replace")
    listed, users, groups, *_ = [*PART.split(output, maxsplit=2), "", ""]
    gpus, troubles = parse_gpus(listed)
    states = gpu_states(gpus, parse_users(users), parse_owners(groups, jobs))
    return replace(report, gpus=states, gpu_troubles=troubles)


def parse_owners(text: str, jobs: Mapping[str, str]) -> dict[int, str]:
    """Return the job of each process that runs in one of our containers."""
    owners = {}
    for line in text.splitlines()[:MAX_LINES]:
        pid, _, groups = line.partition(" ")
        found = [jobs[name] for name in CONTAINER.findall(groups) if name in jobs]
        if found and NUMBER.fullmatch(pid):
            owners[int(pid)] = found[0]
    return owners


def gpu_states(gpus: Iterable[Gpu], users: Iterable[GpuUser], owners: Mapping[int, str]) -> tuple[GpuState, ...]:
    """Return the state of each GPU: whose processes are on it."""
    listed = list(users)
    states = []
    for gpu in gpus:
        here = [user for user in listed if user.uuid == gpu.uuid]
        job = next((owners[user.pid] for user in here if user.pid in owners and user.pid is not None), None)
        foreign_processes = tuple(f"pid {user.pid or '?'} {user.name}" for user in here if user.pid not in owners)
        states.append(GpuState(gpu, job, foreign_processes))
    return tuple(states)
