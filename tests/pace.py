"""Makes the waits of all tests as long as the machine needs: a wait that runs out is held against its measured pace.

The seconds that a test names are those of a quiet machine of the usual speed. When they have passed and the answer has
not come, a small FP16 training is run and timed. It takes longer on a slow machine, on one that is slow in FP16, and on
one that is busy with something else, and the wait goes on as many times longer. So a quick machine measures nothing,
and only what never comes fails.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

TRAINING = """
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
for _ in range(20):
    with torch.autocast("cpu", torch.float16):
        loss = model(torch.ones(64, 64)).float().square().mean()
    loss.backward()
"""
# How long that training takes, most of it to load torch, on a quiet machine of the usual speed.
USUAL = 2.0
# What makes progress all the time and never comes to its end fails after so many waits.
MOST_WAITS = 10
# How often a process that is waited for is asked whether it has ended; an end is noticed at once all the same.
ASK_EVERY = 0.5


def slowness() -> float:
    """Return how many times longer than usual a small FP16 training takes on this machine now; never less than 1."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", TRAINING], check=True, stdin=subprocess.DEVNULL)
    return max(1.0, (time.monotonic() - begun) / USUAL)


@functools.cache
def _slowness_of_this_run() -> float:
    return slowness()


def seconds(usual: float) -> float:
    """Return a limit that must be named beforehand, as long as this machine needs it."""
    return usual * _slowness_of_this_run()


class Patience:
    """A wait of so many seconds at the usual pace, begun now; it begins again while `progress` gives new answers."""

    def __init__(self, usual: float, progress: Callable[[], Any] | None = None) -> None:
        self.usual = usual
        self._progress = progress or (lambda: None)
        self._seen = self._progress()
        self._first = self._begun = time.monotonic()
        self._until = self._begun + usual

    def is_over(self) -> bool:
        """Tell whether the wait has run out, by the pace of the machine when it was to run out."""
        if time.monotonic() < self._until:
            return False
        length = self.usual * slowness()
        now, seen = time.monotonic(), self._progress()
        if seen != self._seen and now < self._first + MOST_WAITS * length:
            self._seen, self._begun = seen, now
        self._until = self._begun + length
        return now >= self._until

    def __str__(self) -> str:
        return f"{time.monotonic() - self._first:.0f} s"


def until(condition: Callable[[], Any], usual: float, what: object = "", every: float = 0.01) -> Any:
    """Ask again and again until the answer is true and return it; fail when it never is."""
    patience = Patience(usual)
    while True:
        is_last = patience.is_over()
        if answer := condition():
            return answer
        assert not is_last, f"not so after {patience}: {what or condition}"
        time.sleep(every)


def wait(process: subprocess.Popen[Any], usual: float) -> int:
    """Wait for a process to end and return its exit code."""
    patience = Patience(usual)
    while True:
        is_last = patience.is_over()
        try:
            return process.wait(timeout=ASK_EVERY)
        except subprocess.TimeoutExpired:
            if is_last:
                raise


def communicate(
    process: subprocess.Popen[Any], input: Any = None, *, usual: float, progress: Callable[[], Any] | None = None
) -> tuple[Any, Any]:
    """Give a process its input, wait for it to end and return what it wrote."""
    patience = Patience(usual, progress)
    if process.stdin is not None:
        # Python's own way of writing it does not survive being asked more than once.
        threading.Thread(target=_feed, args=(process.stdin, input), daemon=True).start()
        process.stdin = None
    while True:
        is_last = patience.is_over()
        try:
            return process.communicate(timeout=ASK_EVERY)
        except subprocess.TimeoutExpired:
            if is_last:
                raise


def _feed(pipe: IO[Any], data: Any) -> None:
    # A process that ends before it has read all of it is no fault.
    with contextlib.suppress(BrokenPipeError), pipe:
        if data:
            pipe.write(data)


def run(
    command: Sequence[Any],
    *,
    usual: float,
    progress: Callable[[], Any] | None = None,
    input: Any = None,
    capture_output: bool = False,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a program as subprocess.run does; one that runs too long is killed."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with subprocess.Popen(command, **options) as process:
        try:
            out, err = communicate(process, input, usual=usual, progress=progress)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def newest_change(folder: Path) -> float:
    """Return when a file in a folder was last written: progress of whatever writes there."""
    newest = 0.0
    for path in folder.rglob("*"):
        try:
            newest = max(newest, path.stat().st_mtime)
        except FileNotFoundError:
            continue
    return newest
