"""Finds and ends the leftovers of an engine: its processes, control groups and mounts, and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.fleet.patience import run, wait_for

CGROUPS = Path("/sys/fs/cgroup")
# The programs of an engine; dockerd starts as setsid.
ENGINE = ("dockerd", "containerd", "setsid")


def pid_in(file: Path) -> int | None:
    """Return the pid that a pid file holds."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def is_of(pid: int, folder: Path) -> bool:
    """Return whether a process is alive and its command line names a folder. The pid alone can be reused."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return False
    return state != "Z" and any(f"{folder}/" in word for word in words)


def processes_of(folder: Path) -> list[int]:
    """Return the dockerd, containerd and shims of the engine in a folder: all name its paths on their command line."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if name_of(pid).startswith(ENGINE) and is_of(pid, folder)]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def end(pid: int, folder: Path, number: signal.Signals) -> None:
    """Send a signal to a process of a folder and wait until it is gone."""
    if is_of(pid, folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        wait_for(lambda: not is_of(pid, folder), f"the end of process {pid}")


def groups_of(name: str) -> Iterator[Path]:
    """Yield every control group called so at the top of a hierarchy, and those below it, deepest first."""
    for top in [CGROUPS / name, *CGROUPS.glob(f"*/{name}")]:
        for folder, _, _ in os.walk(top, topdown=False):
            yield Path(folder)


def clear_groups(name: str) -> None:
    """Kill whatever runs in a control group, frozen or not, and remove it."""
    for group in groups_of(name):
        for file, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            with contextlib.suppress(OSError):
                (group / file).write_text(word)
    wait_for(lambda: not kill_members(name), f"the end of everything in the control group {name}")
    # A killed process that still gives back a GPU's memory is in no list any more, and holds its group.
    wait_for(lambda: remove_groups(name), f"the removal of the control group {name}")


def remove_groups(name: str) -> bool:
    """Remove the control groups of a name; return whether all of them are gone."""
    for group in groups_of(name):
        with contextlib.suppress(OSError):
            group.rmdir()
    return not list(groups_of(name))


def kill_members(name: str) -> bool:
    """Kill the processes of a control group; return whether there were any."""
    found = False
    for group in groups_of(name):
        with contextlib.suppress(OSError):
            for word in (group / "cgroup.procs").read_text().split():
                found = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(word), signal.SIGKILL)
    return found


def mounts_under(folder: Path) -> list[str]:
    """Return the mount points in a folder, the innermost first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    points = [point.encode().decode("unicode_escape") for point in points]
    return [point for point in reversed(points) if point == str(folder) or point.startswith(f"{folder}/")]


def is_mounted_from(folder: Path) -> bool:
    """Return whether something in a folder is mounted elsewhere, as the layers of a running fleet are."""
    return any(f"/{folder.name}/" in line.split()[3] for line in Path("/proc/self/mountinfo").read_text().splitlines())


def unmount_under(folder: Path) -> None:
    for point in mounts_under(folder):
        run("umount", point, check=False)
    for point in mounts_under(folder):
        run("umount", "--lazy", point)
