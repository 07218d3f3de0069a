"""Checks the report of a host for what a job needs there, with a fix for each problem. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rung.jobs.model.engine import PlacedBy
from rung.runner.hosts.health import failed_checks
from rung.runner.hosts.nvidia_smi import driver_branch
from rung.runner.hosts.survey import Report
from rung.runner.preflight.check_job import CheckResult

# CUDA 12 needs this driver or a newer one; it is the oldest CUDA of the images.
MIN_DRIVER = 525
# A training image takes 5 to 10 GB; the files and logs of a job are small.
MIN_ENGINE_DISK = 10 << 30
MIN_HOME_DISK = 1 << 30
# Logs and leases are ordered by time; a clock that is set over the network is right to a fraction of a second.
MAX_CLOCK_SKEW = 5.0
PROVISION = "`make provision` does it"


def check_host(report: Report) -> Iterator[CheckResult]:
    """Yield what is missing on one host for a job to run there."""
    name = report.host.name
    if report.away:
        yield _away(report)
        return
    if report.host.engine.placed_by is PlacedBy.SITE:
        yield _site(report)
        return
    problems = [*_engine(report), *_driver(report), *_disk(report), *_clock(report), *_health(report)]
    yield from (CheckResult(False, f"host {name}: {what}", fix) for what, fix in problems)
    if not problems:
        types = ", ".join(state.gpu.type for state in report.gpus)
        yield CheckResult(True, f"host {name}: engine {report.engine}, {types}")


def _site(report: Report) -> CheckResult:
    """Return what is known of a cluster: it looks after its nodes itself."""
    name = report.host.name
    if not report.engine:
        problem = report.engine_trouble.removeprefix(f"{name}: ")
        return CheckResult(False, f"host {name}: {problem}", f"on {report.host.address}: sinfo")
    gpus = ", ".join(f"{count} {kind}" for kind, count in report.site_gpus) or "no GPU"
    return CheckResult(True, f"host {name}: {report.engine}, {gpus}")


def _away(report: Report) -> CheckResult:
    name = report.host.name
    problem = report.away.removeprefix(f"{name}: ")
    if report.refused:
        return CheckResult(False, f"host {name}: {problem}")
    fix = f"is it up, and {report.host.address} right? see `rung hosts`"
    return CheckResult(False, f"host {name}: unreachable: {problem}", fix)


def _engine(report: Report) -> Iterator[tuple[str, str]]:
    socket = report.host.engine_socket
    user = report.user or "this login"
    if report.engine:
        return
    if report.socket == "missing" and not report.programs:
        yield "no container engine is installed", f"{PROVISION}; by hand: sudo apt-get install docker.io"
    elif report.socket == "missing":
        yield f"the engine is not running ({socket} is not there)", "on the host: sudo systemctl enable --now docker"
    elif report.socket == "denied":
        fix = f"{PROVISION}; by hand: sudo usermod -aG docker {shlex.quote(user)}, then log in anew"
        yield f"{user} may not use the engine ({socket})", fix
    elif "does not let us in" in report.engine_trouble:
        fix = "on the host: set AllowStreamLocalForwarding yes in sshd_config, or start the engine if it is dead"
        yield f"{socket} is there but nothing can be connected to it", fix
    else:
        problem = report.engine_trouble.removeprefix(f"{report.host.name}: ")
        yield f"the engine does not answer: {problem}", "on the host: sudo systemctl restart docker"


def _driver(report: Report) -> Iterator[tuple[str, str]]:
    if report.driver_missing:
        yield "no GPU driver (nvidia-smi is not there)", PROVISION
        return
    for trouble in report.gpu_troubles:
        old = "compute_cap" in trouble
        yield (f"the GPU driver is too old; {trouble}" if old else trouble), PROVISION if old else "reboot the host"
    if not report.gpus and not report.gpu_troubles:
        yield "the driver names no GPU", "is one built in? on the host: lspci | grep -i nvidia"
    drivers = {state.gpu.driver for state in report.gpus}
    for driver in sorted(drivers):
        if driver_branch(driver) < MIN_DRIVER:
            yield f"driver {driver or '?'} is too old for CUDA 12 images (at least {MIN_DRIVER})", PROVISION


def _disk(report: Report) -> Iterator[tuple[str, str]]:
    for disk in report.disks:
        if disk.free < (MIN_ENGINE_DISK if disk.engine else MIN_HOME_DISK):
            free, total = disk.free / (1 << 30), disk.total / (1 << 30)
            problem = f"disk nearly full: {free:.1f} of {total:.1f} GiB free on {disk.mount}"
            prune = "docker image prune, or " if disk.engine else ""
            yield problem, f"on the host: {prune}remove what is not needed"


def _clock(report: Report) -> Iterator[tuple[str, str]]:
    if report.clock_skew > MAX_CLOCK_SKEW:
        yield f"its clock is {report.clock_skew:.0f} s off ours", "on the host: sudo timedatectl set-ntp true"


def _health(report: Report) -> Iterator[tuple[str, str]]:
    for one in failed_checks(report.health):
        yield f"{one.what}: {one.message}", one.fix
