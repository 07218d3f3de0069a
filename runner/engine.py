"""Owns the engine seam: what an engine is asked and what it may answer. Engines start, find, observe and stop attempts.

An engine must be asked `observe` before `start`; "unreachable" and "waiting" are answers, never reasons to start again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from jobs.gpu import Gpu
from jobs.paths import AttemptPaths


class Presence(StrEnum):
    ABSENT = "absent"  # never started
    RUNNING = "running"
    ENDED = "ended"  # with a completion record
    LOST = "lost"  # started, gone, and left no completion record
    UNREACHABLE = "unreachable"
    WAITING = "waiting"


@dataclass(frozen=True)
class Observation:
    """What the engine just said of an attempt."""

    presence: Presence
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    started_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True)
class Request:
    """Everything an engine needs to run an attempt; printable, so that a dry run shows the real thing."""

    job_id: str
    attempt: int
    argv: tuple[str, ...]
    cwd: Path
    # Without secrets: those are looked up by name at the moment of the start.
    env: Mapping[str, str]
    paths: AttemptPaths
    checkpoint_dir: Path
    secrets: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "argv": list(self.argv),
            "cwd": str(self.cwd),
            "env": dict(self.env),
            "secrets": list(self.secrets),
            "limits": dict(self.limits),
            "log": str(self.paths.log),
        }


@dataclass(frozen=True)
class FileEntry:
    """A file on the attempt's host, by name, size and time of writing."""

    name: str
    size: int
    written_at: float

    @property
    def fingerprint(self) -> str:
        return f"{self.name}:{self.size}:{self.written_at!r}"


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do, so that a job that needs more is refused before it waits."""

    limits: bool
    images: bool
    gpu_choice: bool


class Engine(Protocol):
    """Starts, finds, observes and stops attempts on one host."""

    host: str
    capabilities: Capabilities

    def start(self, request: Request, secrets: Mapping[str, str]) -> None:
        """Start the attempt, or do nothing if it has been started already."""

    def observe(self, paths: AttemptPaths) -> Observation: ...

    def stop(self, paths: AttemptPaths, *, force: bool) -> None:
        """Ask the whole attempt to end (TERM), or end it (KILL); it is gone when `observe` says so."""

    def read_log(self, paths: AttemptPaths, offset: int, size: int) -> bytes: ...

    def run(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        """Run a short command in the attempt's own environment: exit code, output, errors."""

    def list_files(self, folder: Path, pattern: str) -> list[FileEntry]:
        """Return the plain files of this pattern in a folder of the attempt's host."""

    def gpu(self) -> Gpu | None: ...
