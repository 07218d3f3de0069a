"""Checks each checkpoint in a process of its own, under limits on memory, time and writing.

A file that makes the check run out of memory, or kills it, gets a verdict like any other, and the next file is checked.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import resource
import signal
import sys
import warnings
from typing import Any, Callable

from rung_inside.verify.stored.verdict import REFUSED, UNREADABLE, UNVERIFIED

# For one checkpoint, besides what Python and torch need. Files are mapped, which does not count.
MEMORY = 2 << 30
# Seconds of CPU for any file, and bytes that even a slow CPU checks in one more second.
CPU_SECONDS, BYTES_A_SECOND = 300, 10_000_000
# Each thread of torch needs memory of its own.
MOST_THREADS = 16
MOST_OPEN_FILES = 1 << 16
MOST_ANSWER = 1 << 20
MOST_FOLDERS = 1000
PR_SET_PDEATHSIG = 1


def examined_apart(path: str, full: bool, examine: Callable[[str, bool], dict[str, Any]]) -> dict[str, Any]:
    """Return the verdict of `examine` on one path, which runs in a process of its own."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python warns about threads. Those of libraries wait, and hold nothing that the child needs.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        os.close(reading)
        _be_the_check(writing, path, full, examine)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read(MOST_ANSWER)
    _, status = os.waitpid(child, 0)
    try:
        result: dict[str, Any] = json.loads(answer)
    except ValueError:
        verdict, detail = _without_answer(status)
        look = "full" if full else "sampled"
        return {"path": path, "verdict": verdict, "step": None, "detail": detail, "kind": "", "look": look}
    return result


def _be_the_check(writing: int, path: str, full: bool, examine: Callable[[str, bool], dict[str, Any]]) -> None:
    """Examine a path, write the verdict into the pipe, and end this process without going back."""
    try:
        _die_with_parent()
        # This process ends soon, and searching millions of small objects for cycles takes longer than making them.
        gc.disable()
        set_limits(size_of(path))
        answer = json.dumps(examine(path, full)).encode()
        while answer:
            answer = answer[os.write(writing, answer) :]
    finally:
        os._exit(0)


def _without_answer(status: int) -> tuple[str, str]:
    """Return the verdict on a file whose check ended without one."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGXCPU:
        return REFUSED, "checking it takes more time than any checkpoint of its size needs"
    if number == signal.SIGKILL:
        # By the kernel, when the machine or the container has no memory left: that may be different the next time.
        return UNVERIFIED, "its check was killed"
    if number == signal.SIGBUS:
        return UNREADABLE, "it became shorter while it was checked, or its disk failed"
    return UNREADABLE, f"its check ended with signal {number}" if number else "its check ended without a verdict"


def size_of(path: str) -> int:
    """Return how many bytes a file or the files of a folder have; an error counts as none."""
    total = 0
    try:
        total = os.stat(path).st_size
        if os.path.isdir(path):
            for place, _, names in itertools.islice(os.walk(path), MOST_FOLDERS):
                total += sum(os.lstat(os.path.join(place, name)).st_size for name in names)
    except OSError:
        return total
    return total


def set_limits(size: int) -> None:
    """Limit this process for the check of so many bytes. Nothing it does later can raise the limits again."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + CPU_SECONDS + size // BYTES_A_SECOND
    # The kernel sends SIGXCPU at the lower limit. At the upper one it kills, which says nothing about the reason.
    _limit(resource.RLIMIT_CPU, seconds, spare=30)
    _limit(resource.RLIMIT_DATA, _data_bytes() + MEMORY)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    # The files of a large folder are all open at once.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_OPEN_FILES if most == resource.RLIM_INFINITY else min(most, MOST_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _limit(kind: int, value: int, spare: int = 0) -> None:
    _, most = resource.getrlimit(kind)
    lower, upper = (each if most == resource.RLIM_INFINITY else min(each, most) for each in (value, value + spare))
    resource.setrlimit(kind, (lower, upper))


def _data_bytes() -> int:
    """Return how much memory of its own this process has now; torch alone may have reserved much of it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file if line.startswith(("VmData:", "VmStk:"))]
    except OSError:
        return MEMORY
    return sum(int(words[1]) * 1024 for words in lines)


def _die_with_parent() -> None:
    """Ask the kernel to end this process with its parent, which the controller kills when the time is over."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
