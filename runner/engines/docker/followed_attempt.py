"""Holds the state of one followed attempt, and texts about why it is not followed now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.terminal_text import clean
from rung.runner.engines.docker.container_state import ContainerState, Status
from rung.runner.engines.docker.log_copy import LogCopy
from rung.runner.engines.docker.log_stream import LogStream
from rung.runner.seams.engine import Observation, Presence

# The time is shown in these steps, in seconds: a reason that changes every second helps nobody.
STEPS = (1, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400)

# Between two tries to follow an attempt that is in trouble; doubled after each failure.
RETRY_SECONDS, MOST_RETRY_SECONDS = 1.0, 60.0
SILENT_SECONDS = 60.0
# The last lines of a log, from Rung itself. The wrapper in the container prints the first one too.
OUT_OF_MEMORY = "rung: the container reached its memory limit, and the kernel killed a process: out of memory"
ENDS_EARLY = "rung: this log may lack its last lines: the container was removed from {host} before they were read here"


@dataclass
class FollowedAttempt:
    """One attempt that the log follower follows."""

    name: str
    paths: AttemptPaths
    copy: LogCopy
    state: ContainerState = field(default_factory=lambda: ContainerState(Status.ABSENT))
    observation: Observation | None = None
    # Why it cannot be followed now, such as a full disk here; how often in a row, and when it is tried again.
    trouble: str = ""
    failures: int = 0
    retry_at: float = 0.0
    # Since when its engine or host cannot tell about it; None: it can, or the trouble is here.
    silent_since: float | None = None
    # Grows with every event that may have changed the container; an inspection that began before does not count.
    version: int = 1
    inspected_version: int = 0
    stream: LogStream | None = None
    reopen_at: float = 0.0
    save_at: float = 0.0
    finalized: bool = False

    @property
    def needs_inspection(self) -> bool:
        return self.version > self.inspected_version

    def answer(self, host: str, now: float) -> Observation:
        """Return the latest observation, or why there is none now."""
        if self.trouble and self.silent_since is not None and now - self.silent_since > SILENT_SECONDS:
            # Nobody knows how it is, as if its host did not answer; the job may move on after host_lost_after.
            return Observation(Presence.UNREACHABLE, detail=self.trouble)
        if self.trouble or self.observation is None:
            return Observation(Presence.WAITING, detail=self.trouble or f"{host} is not watched")
        return self.observation

    def moments(self) -> Iterator[float]:
        """Yield when there is something to do for it, even if no data arrives."""
        if self.needs_inspection:
            yield self.retry_at
        if self.wants_stream:
            yield self.reopen_at
        elif self.stream is not None and self.copy.unsaved:
            yield self.save_at

    def finish_log(self, state: ContainerState, host: str) -> None:
        """Complete the copy of the log with what it does not say itself."""
        if state.out_of_memory:
            self.copy.append_note(OUT_OF_MEMORY)
        complete = state.status is Status.ENDED or self.copy.complete
        if not complete:
            self.copy.append_note(ENDS_EARLY.format(host=host))
        self.copy.finish(complete=complete)

    def fail(self, error: Exception, now: float) -> None:
        """Take an error that says nothing about other attempts; wait longer after every one in a row."""
        self.failures += 1
        self.retry_at = self.reopen_at = now + min(MOST_RETRY_SECONDS, RETRY_SECONDS * 2 ** min(self.failures - 1, 10))
        self.trouble = trouble_of(error, self.paths)
        if isinstance(error, OSError):
            self.silent_since = None
        elif self.silent_since is None:
            self.silent_since = now

    def recover(self) -> None:
        self.trouble = ""
        # An end that fails again and again is not tried ever faster, although its log can be read.
        if self.finalized or self.state.status is not Status.ENDED:
            self.failures, self.silent_since = 0, None

    @property
    def wants_stream(self) -> bool:
        return self.stream is None and not self.finalized and self.state.status in (Status.RUNNING, Status.ENDED)


def span(seconds: float) -> str:
    """Return a time as text, rounded down to a step."""
    whole = max((step for step in STEPS if step <= seconds), default=0)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h"


def trouble_of(error: Exception, paths: AttemptPaths) -> str:
    """Return in one line why an attempt cannot be followed now, for an error that says nothing about its host."""
    if isinstance(error, OSError):
        return f"{error.filename or paths.log}: cannot be written here: {error.strerror or error}"
    if isinstance(error, EngineError):
        return str(error)
    return f"the engine's answer about it is not understood: {type(error).__name__}: {clean(str(error))[:200]}"
