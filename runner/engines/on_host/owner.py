"""Names the process that uses something on a host for a while, so that another one can tell when it is left."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

PID = re.compile(r"[0-9]{1,10}")


@cache
def this_process() -> str:
    """Name this process so that no later one has the same name: boot, namespace of pids, pid and start time."""
    return f"{_boot()}.{_namespace()}.{os.getpid()}.{_start_of(os.getpid())}"


def is_gone(owner: str) -> bool:
    """Tell whether the process of this name has certainly ended. One in another namespace cannot be seen from here."""
    boot, namespace, pid, start = [*owner.split("."), "", "", ""][:4]
    if boot != _boot():
        return True
    if namespace != str(_namespace()) or not PID.fullmatch(pid):
        return False
    return _start_of(int(pid)) != start


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _start_of(pid: int) -> str:
    """Return when a process was started, in ticks since the boot; empty if there is none, or it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = text.rpartition(")")[2].split()  # the name before it may contain spaces and parentheses
    return "" if fields[0] == "Z" else fields[19]
