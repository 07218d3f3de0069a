"""Makes the waits of all tests as long as the machine needs.

A test gives the seconds for an idle machine of usual speed. When they are over, a small FP16 training is timed. It
takes longer on a slow machine, on one that is slow in FP16 and on a busy one, and the wait becomes as many times
longer. So a fast machine measures nothing, and a wait fails only when its condition never becomes true.
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
# The seconds of that training on an idle machine of usual speed; most of them are for loading torch.
USUAL = 2.0
# A wait with constant progress and no end fails after this many times its length.
MOST_WAITS = 10
# The seconds between two checks of the limit while a process runs; the end of the process is noticed at once.
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
    """Return a time limit for this machine, for calls that need it in advance."""
    return usual * _slowness_of_this_run()


class Patience:
    """A wait of so many seconds at usual speed that starts now; it starts again when `progress` returns a new value."""

    def __init__(self, usual: float, progress: Callable[[], Any] | None = None) -> None:
        self.usual = usual
        self._progress = progress or (lambda: None)
        self._seen = self._progress()
        self._first = self._begun = time.monotonic()
        self._until = self._begun + usual

    def is_over(self) -> bool:
        """Return whether the wait is over, by the speed of the machine now."""
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
    """Wait until the condition returns a true value, and return it; fail when the wait is over."""
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
        # Popen.communicate cannot be called again after a timeout when it has input.
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
    # A process may end before it has read all of its input.
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
    """Return when a file in a folder was last written, as a sign of progress."""
    newest = 0.0
    for path in folder.rglob("*"):
        try:
            newest = max(newest, path.stat().st_mtime)
        except FileNotFoundError:
            continue
    return newest
