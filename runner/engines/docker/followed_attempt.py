"""Holds the state of one followed attempt, and the text for how long a host has been unreachable."""

from __future__ import annotations

from dataclasses import dataclass, field

from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.container_state import ContainerState, Status
from rung.runner.engines.docker.log_copy import LogCopy
from rung.runner.engines.docker.log_stream import LogStream
from rung.runner.seams.engine import Observation

# The time is shown in these steps, in seconds: a reason that changes every second helps nobody.
STEPS = (1, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400)


@dataclass
class FollowedAttempt:
    """One attempt that the log follower follows."""

    name: str
    paths: AttemptPaths
    copy: LogCopy
    state: ContainerState = field(default_factory=lambda: ContainerState(Status.ABSENT))
    observation: Observation | None = None
    # Why its log cannot be written here, such as a full disk.
    disk_error: str = ""
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

    @property
    def wants_stream(self) -> bool:
        return self.stream is None and not self.finalized and self.state.status in (Status.RUNNING, Status.ENDED)


def span(seconds: float) -> str:
    """Return a time as text, rounded down to a step."""
    whole = max((step for step in STEPS if step <= seconds), default=0)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h"
