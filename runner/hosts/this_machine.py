"""Surveys this machine for jobs without an image: its GPUs, who uses them, and how many jobs run here without one."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rung.jobs.model.engine import PROCESS
from rung.jobs.model.errors import UsageError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import Host
from rung.jobs.spec.resources import GpuRequest
from rung.runner.hosts.nvidia_smi import GPU_QUERY, USER_QUERY, GpuUser, parse_gpus, parse_users
from rung.runner.hosts.survey import GPU_SECONDS, Report, gpu_states

HERE = Host("localhost", "localhost", engine=PROCESS)
# What a report says instead of the version of a container engine.
ENGINE = "processes"
# The variable with the most jobs that run here at once without a GPU.
MAX_PARALLEL = "RUNG_MAX_PARALLEL"
MOST_PARALLEL = 10_000
VISIBLE = "CUDA_VISIBLE_DEVICES"
JOB = re.compile(rb"RUNG_JOB=([\w.-]{1,200})")


def max_parallel(environ: Mapping[str, str]) -> int:
    """Return how many jobs without a GPU run here at once: as RUNG_MAX_PARALLEL says, else one for each core."""
    text = environ.get(MAX_PARALLEL, "").strip()
    if not text:
        return len(os.sched_getaffinity(0))
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= MOST_PARALLEL:
        raise UsageError(
            f"{MAX_PARALLEL}: give how many jobs without a GPU may run at once on this machine, "
            f"from 1 to {MOST_PARALLEL} (got {text[:60]!r})"
        )
    return int(text)


def survey_here(environ: Mapping[str, str]) -> Report:
    """Return the GPUs of this machine that the environment leaves to us, and which job or process uses each."""
    try:
        gpus, troubles = parse_gpus(_ask(GPU_QUERY))
        users = parse_users(_ask(USER_QUERY)) if gpus else ()
    except FileNotFoundError:
        return Report(HERE, engine=ENGINE, driver_missing=True)
    except OSError as error:
        return Report(HERE, engine=ENGINE, gpu_troubles=(f"nvidia-smi cannot be run: {error.strerror}",))
    except subprocess.TimeoutExpired:
        why = f"nvidia-smi does not answer in {GPU_SECONDS:g} s: the driver hangs"
        return Report(HERE, engine=ENGINE, gpu_troubles=(why,))
    states = gpu_states(visible(gpus, environ.get(VISIBLE)), users, _jobs(users))
    return Report(HERE, engine=ENGINE, gpus=states, gpu_troubles=troubles)


def visible(gpus: Sequence[Gpu], named: str | None) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names, by index or by the beginning of their UUID; None: all of them.

    CUDA reads the names up to the first that means no GPU, and so does this.
    """
    if named is None:
        return list(gpus)
    found: list[Gpu] = []
    for name in (name.strip() for name in named.split(",")):
        match = [gpu for gpu in gpus if _means(name, gpu)]
        if len(match) != 1:
            break
        found += [gpu for gpu in match if gpu not in found]
    return found


def lacks_gpus(requests: Sequence[GpuRequest], report: Report) -> str:
    """Return why this machine can fulfil none of the requests, free or not; empty if it can, or if it cannot tell."""
    if report.gpu_troubles:
        return ""
    gpus = [state.gpu for state in report.gpus]
    if any(sum(request.fits(gpu) for gpu in gpus) >= request.count for request in requests):
        return ""
    has = ", ".join(gpu.type for gpu in gpus) or why_no_gpu(report)
    return f"does not have {' or '.join(request.text for request in requests)} (it has {has})"


def why_no_gpu(report: Report) -> str:
    """Return why the report has no GPU."""
    if report.driver_missing:
        return "no nvidia-smi"
    return "; ".join(report.gpu_troubles)[:160] or f"no GPU, or none that {VISIBLE} shows"


def _means(name: str, gpu: Gpu) -> bool:
    return name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name))


def _ask(query: Sequence[str]) -> str:
    done = subprocess.run(list(query), stdin=subprocess.DEVNULL, capture_output=True, timeout=GPU_SECONDS, check=False)
    # A driver that is broken says so on either of the two.
    return (done.stdout or done.stderr).decode("utf-8", "replace")


def _jobs(users: Iterable[GpuUser]) -> dict[int, str]:
    """Return the job of each process that a controller has started, also that of another RUNG_HOME."""
    found = {user.pid: job_of(user.pid) for user in users if user.pid is not None}
    return {pid: job for pid, job in found.items() if job}


def job_of(pid: int) -> str:
    """Return the job that a process belongs to by its environment; empty for others, and for those of other users."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    names = [match[1].decode("ascii", "replace") for match in map(JOB.fullmatch, variables) if match]
    return names[0] if names else ""
