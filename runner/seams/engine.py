"""Owns the engine seam: what an engine is asked and what it may answer. Engines start, find, observe and stop attempts.

An engine must be asked `observe` before `start`; "unreachable" and "waiting" are answers, never reasons to start again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from rung.jobs.model.errors import EngineError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.spec.precision_names import ScriptValue
from rung.jobs.spec.volume import Volume


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
class Container:
    """What an attempt in a container needs beyond its command."""

    # name@sha256:... as a registry has it, or sha256:... as an engine has it.
    image: str
    # By UUID, or by index where the driver names no UUID.
    gpus: tuple[str, ...] = ()
    volumes: tuple[Volume, ...] = ()
    shm: int = 1 << 30
    pids: int = 4096
    network: str = "bridge"
    # Which stay of the job on this host; each has a folder of its own for what the job writes.
    residence: int = 1


@dataclass(frozen=True)
class FileEdit:
    """Keys of one config file in the workdir that are set for an attempt, in its own copy."""

    path: str
    values: Mapping[str, ScriptValue]


@dataclass(frozen=True)
class Request:
    """Everything an engine needs to run an attempt; printable, so that a dry run shows the real thing.

    For a container, `cwd` and `checkpoint_dir` are paths in it. `source` is the folder here that is shipped, or copied
    where a process has files to be edited; None: the command runs in the folder itself.
    """

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
    container: Container | None = None
    source: Path | None = None
    edits: tuple[FileEdit, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "argv": list(self.argv),
            "cwd": str(self.cwd),
            "env": dict(self.env),
            "secrets": list(self.secrets),
            "limits": dict(self.limits),
            "log": str(self.paths.log),
            "files": {edit.path: dict(edit.values) for edit in self.edits},
        }


@dataclass(frozen=True)
class FileEntry:
    """A file or folder on the attempt's host, by name, size and time of writing."""

    name: str
    size: int
    written_at: float
    is_folder: bool = False
    # Of a folder: of the names, sizes and times of all its files. Of a file on this machine: of samples of its bytes.
    digest: str = ""

    @property
    def fingerprint(self) -> str:
        digest = f"/{self.digest}" if self.digest else ""
        return f"{self.name}:{self.size}{digest}:{self.written_at!r}"


class Engine(Protocol):
    """Starts, finds, observes and stops attempts on one host."""

    host: str

    def start(self, request: Request, secrets: Mapping[str, str]) -> None:
        """Start the attempt, or do nothing if it has been started already."""

    def observe(self, paths: AttemptPaths) -> Observation: ...

    def stop(self, paths: AttemptPaths, *, force: bool) -> None:
        """Ask the whole attempt to end (TERM), or end it (KILL); it is gone when `observe` says so."""

    def kill_unannounced(self, paths: AttemptPaths) -> None:
        """Kill a running attempt as the machine might, with no word to anybody: what a drill does."""

    def read_log(self, paths: AttemptPaths, offset: int, size: int) -> bytes: ...

    def run(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        """Run a short command in the attempt's own environment: exit code, output, errors."""

    def list_files(self, request: Request, pattern: str) -> list[FileEntry]:
        """Return the plain files and the folders of this pattern in the attempt's checkpoint folder; none that is
        hidden."""

    def move(self, request: Request, names: Sequence[str], aside: Path) -> None:
        """Move these of the attempt's checkpoints into another folder of the job; what is gone already is fine."""


class LocalEngine(Engine, Protocol):
    """The engine of this machine."""

    def gpu(self) -> Gpu | None:
        """Return the first GPU that the driver names, or None on a machine without one."""


class HostEngine(Engine, Protocol):
    """An engine on a host that is reached over a connection; any method may raise HostUnreachable."""

    def ensure_image(self, image: str, on_progress: Callable[[str], None]) -> None:
        """Have the image on the host, telling how far it is."""

    def incompatibility(self, image: str, gpu: Gpu) -> str | None:
        """Say why an image that is there cannot run on this GPU; None: it can."""

    def checkpoint_folder(self, request: Request) -> str:
        """Return where the attempt's checkpoints lie on the host."""

    def close(self) -> None: ...


def read_local_log(path: Path, offset: int, size: int) -> bytes:
    """Return at most so many bytes of a log on this machine from an offset on; nothing where there is no log yet."""
    try:
        with path.open("rb") as log:
            log.seek(offset)
            return log.read(size)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise EngineError(f"{path}: cannot be read: {error.strerror}") from None
