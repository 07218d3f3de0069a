"""Finds the process that holds the lock of the store, and stops it; the process itself notes that it was asked to stop.

The lock says that there is a controller, and its file says which process. A pid alone proves nothing: after a crash or
a restart of the machine it may be another process's, so a process counts only if it has the lock's file open.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rung.jobs.model.errors import ControllerError
from rung.jobs.model.paths import HomePaths
from rung.runner.state.lock import is_owned, named_pid

# It ends between two turns; closing the connections to hosts takes seconds at most.
STOP_SECONDS = 60.0
# How a controller is asked to stop: by Ctrl-C, and by another process or a machine that shuts down.
STOPS = {signal.SIGINT, signal.SIGTERM}


@dataclass(frozen=True)
class Owner:
    """The process that is the controller, and when it began."""

    pid: int
    since: float

    def environ(self) -> dict[str, str]:
        """Return the environment that the process was started with; empty if it is gone."""
        with suppress(OSError):
            parts = Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
            pairs = (os.fsdecode(part).partition("=") for part in parts if b"=" in part)
            return {name: value for name, _, value in pairs}
        return {}


def find_owner(paths: HomePaths) -> Owner | None:
    """Return the process of the controller; None if there is none, or if its process cannot be seen from here."""
    pid = named_pid(paths) if is_owned(paths) else None
    if pid is None or not _has_open(pid, paths.lock):
        return None
    with suppress(OSError):
        return Owner(pid, _started(pid))
    return None


def stop_owner(paths: HomePaths) -> int | None:
    """Ask the controller to stop, and wait until it has; return its pid, None if there was none."""
    if not is_owned(paths):
        return None
    owner = find_owner(paths)
    if owner is None:
        raise ControllerError(f"{paths.home}: the process of the controller cannot be seen from here; stop it there")
    with _handle(owner.pid) as handle:
        # Asked once more, now that the pid cannot become another process's.
        if handle is None or not _has_open(owner.pid, paths.lock):
            return owner.pid
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(STOP_SECONDS * 1000):
            raise ControllerError(
                f"controller pid {owner.pid} was asked to stop and runs on after {STOP_SECONDS:.0f} s"
            )
    return owner.pid


@contextmanager
def _handle(pid: int) -> Iterator[int | None]:
    """Hold on to a process, so that its pid is not given to another one; None if it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    with closing(os.fdopen(handle, "rb", buffering=0)):
        yield handle


def _has_open(pid: int, file: Path) -> bool:
    """Tell whether a process has a file open; not if it is gone, or another user's."""
    with suppress(OSError):
        return any(_is_same(opened, file) for opened in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _is_same(opened: Path, file: Path) -> bool:
    with suppress(OSError):
        return opened.samefile(file)
    return False


def _started(pid: int) -> float:
    """Return when a process began, by the time of day."""
    # The name in parentheses may hold anything; the fields after the last one are plain numbers.
    ticks = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
    return time.time() - age


@contextmanager
def stops_held_back() -> Iterator[None]:
    """Let a request to stop wait: others see a controller as soon as it has the lock, before it can answer them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StopRequest:
    """Notes that this process was asked to stop, for a loop that looks at it between two turns.

    The first signal raises nothing. An exception may come at any line of the loop, so that a lock stays taken; Python
    drops one that comes while it removes an object. Only whoever asks twice gets a KeyboardInterrupt at once.
    """

    def __init__(self) -> None:
        self.is_made = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the signals meanwhile; a SIGINT that this process was started to ignore stays ignored."""
        before = {number: signal.getsignal(number) for number in STOPS}
        for number, handler in before.items():
            if number == signal.SIGTERM or handler is not signal.SIG_IGN:
                signal.signal(number, self._note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_made:
            raise KeyboardInterrupt
        self.is_made = True
