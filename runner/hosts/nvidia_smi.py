"""Builds the queries for nvidia-smi and parses its answers. Pure; it runs nothing.

A driver prints `[N/A]` for what it does not know, and a broken one may print anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rung.jobs.model.gpu import Gpu
from rung.jobs.model.terminal_text import clean

FORMAT = "--format=csv,noheader,nounits"
# The name comes last: it is the only field that may contain a comma.
GPU_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,memory.total,driver_version,compute_cap,name", FORMAT)
USER_QUERY = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory,process_name", FORMAT)
MAX_LINES = 1000
MAX_TEXT = 200
MEBIBYTE = 1 << 20
NUMBER = re.compile(r"[0-9]{1,9}")
CAPABILITY = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})")
DRIVER = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,5}){0,3}")


@dataclass(frozen=True)
class GpuUser:
    """A process that computes on a GPU. The driver may hide which one it is."""

    uuid: str
    pid: int | None
    name: str


def parse_gpus(text: str) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """Return the GPUs in the driver's answer, and a sentence for each line that is not a GPU."""
    gpus: list[Gpu] = []
    troubles: list[str] = []
    for line in _lines(text):
        gpu = _gpu(line)
        if gpu is not None and gpu.uuid not in {known.uuid for known in gpus}:
            gpus.append(gpu)
        else:
            troubles.append(f"the GPU driver says: {line}")
    return tuple(gpus), tuple(troubles)


def parse_users(text: str) -> tuple[GpuUser, ...]:
    """Return the processes that compute on GPUs; lines without a GPU are ignored."""
    found = []
    for line in _lines(text):
        fields = [field.strip() for field in line.split(",", 3)]
        if len(fields) == 4 and fields[0].startswith("GPU-"):
            pid = int(fields[1]) if NUMBER.fullmatch(fields[1]) else None
            found.append(GpuUser(fields[0], pid, fields[3]))
    return tuple(found)


def driver_branch(driver: str) -> int:
    """Return the branch of a driver: 535 for 535.183.01; 0 if there is none."""
    return int(driver.split(".")[0]) if DRIVER.fullmatch(driver) else 0


def _gpu(line: str) -> Gpu | None:
    fields = [field.strip() for field in line.split(",", 5)]
    if len(fields) != 6:
        return None
    index, uuid, memory, driver, capability, name = fields
    match = CAPABILITY.fullmatch(capability)
    if match is None or not NUMBER.fullmatch(index) or not uuid.startswith("GPU-") or not name:
        return None
    size = int(memory) * MEBIBYTE if NUMBER.fullmatch(memory) else 0
    known = driver if DRIVER.fullmatch(driver) else ""
    return Gpu(name, (int(match[1]), int(match[2])), int(index), uuid, size, known)


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines()[:MAX_LINES]:
        shown = clean(line).strip()[:MAX_TEXT]
        if shown:
            yield shown
