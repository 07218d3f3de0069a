"""Defines the interface of engines, which start, find, observe and stop attempts.

Call `observe` before `start`; "unreachable" and "waiting" are answers, never reasons to start again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from rung.jobs.model.engine import EndedBy
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.site.settings import Asked
from rung.jobs.spec.precision_names import ScriptValue
from rung.jobs.spec.volume import Volume
from rung.runner.seams.storage import Storage, Trees


class Presence(StrEnum):
    ABSENT = "absent"  # never started
    RUNNING = "running"
    ENDED = "ended"  # with a completion record
    LOST = "lost"  # started, gone, and left no completion record
    UNREACHABLE = "unreachable"
    WAITING = "waiting"
    REFUSED = "refused"  # not started, and a site will never start it


@dataclass(frozen=True)
class Observation:
    """The engine's latest answer about an attempt."""

    presence: Presence
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    # What ended it, one of the `ends` of the engine's kind; None: not known.
    ended_by: EndedBy | None = None
    # Where a site runs it, which it chose by itself.
    node: str | None = None
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True)
class Container:
    """What an attempt on a host needs beyond its command."""

    # name@sha256:... for a registry, or sha256:... for an image that only the engine has. Empty: it runs without one.
    image: str
    # UUIDs, or indexes where the driver reports no UUID.
    gpus: tuple[str, ...] = ()
    volumes: tuple[Volume, ...] = ()
    shm: int = 1 << 30
    pids: int = 4096
    # own, none or host.
    network: str = "own"
    # The number of the job's residence on this host; each has its own folder for the files of the job.
    residence: int = 1


@dataclass(frozen=True)
class FileEdit:
    """Keys of one config file in the workdir that are set in the attempt's copy of it."""

    path: str
    values: Mapping[str, ScriptValue]


@dataclass(frozen=True)
class Request:
    """Everything an engine needs to run an attempt; printable, so that a dry run shows the real thing.

    On a host, `cwd` and `checkpoint_dir` are paths in a container; an engine without one knows where they are. `source`
    is the folder here that is shipped, or copied for a process with files to edit; None: the command runs in the folder
    itself.
    """

    job_id: str
    attempt: int
    argv: tuple[str, ...]
    cwd: Path
    # Without secrets: those are looked up by name at the start.
    env: Mapping[str, str]
    paths: AttemptPaths
    checkpoint_dir: Path
    secrets: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    container: Container | None = None
    source: Path | None = None
    edits: tuple[FileEdit, ...] = ()
    # What is asked of a site that chooses nodes and GPUs by itself, and the nodes where it must not place the attempt.
    asked: Asked | None = None
    avoid: tuple[str, ...] = ()
    # On how many hosts the attempt runs; `paths.node` says which of them this request is for.
    nodes: int = 1

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
    """A file or folder on the attempt's host: name, size and time of writing."""

    name: str
    size: int
    written_at: float
    is_folder: bool = False
    # For a folder: of the names, sizes and times of all its files. For a file on this machine: of samples of its bytes.
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

    def copy(self, source: Request, request: Request, name: str, new_name: str | None = None) -> None:
        """Copy a checkpoint of a residence of the job on this host into the attempt's own folder, in place of another.

        `new_name`: the copy is called so.
        """

    def remove_residence(self, request: Request, residence: int) -> None:
        """Remove the folder of a residence of the job on this host, if it is there; that of the first is refused."""

    def stop(self, paths: AttemptPaths, *, force: bool) -> None:
        """Ask the whole attempt to end (TERM), or end it (KILL); `observe` shows when it is gone."""

    def ask_for_stacks(self, paths: AttemptPaths) -> None:
        """Ask the Python processes of a running attempt to write their stacks into its log, where they can."""

    def kill_unannounced(self, paths: AttemptPaths) -> None:
        """Kill a running attempt without a mark, as a failing machine would. Used by drills."""

    def run(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        """Run a short command in the attempt's environment: exit code, output, errors."""

    def list_files(self, request: Request, pattern: str) -> list[FileEntry]:
        """Return the files and folders in the attempt's checkpoint folder that match; none that are hidden."""

    def move(self, request: Request, names: Sequence[str], aside: Path) -> None:
        """Move these checkpoints into another folder of the job; names that are gone are ignored."""


class PartEngine(Engine, Protocol):
    """An engine that can start a part of an attempt, on one of several hosts that share a file system."""

    def create(self, request: Request) -> None:
        """Do everything up to the start of the part, which `start` then does in a moment; or nothing if it is done."""

    def discard(self, paths: AttemptPaths) -> None:
        """Remove a part with what runs of it, because another part could not be started. There is no way back."""


class LocalEngine(Engine, Protocol):
    """The engine of this machine."""

    def signs_of_end(self, paths: AttemptPaths) -> tuple[str, ...]:
        """Return files of which one appears or vanishes when a running attempt ends; looking at them costs nothing."""

    def gpu(self) -> Gpu | None:
        """Return the first GPU of this machine, or None."""


class HostEngine(Engine, Protocol):
    """An engine on a host that is reached over a connection; any method may raise HostUnreachable."""

    def ensure_image(self, image: str, on_progress: Callable[[str], None]) -> None:
        """Bring the image to the host, and report the progress."""

    def incompatibility(self, image: str, gpu: Gpu) -> str | None:
        """Return why an image on the host cannot run on this GPU; None: it can."""

    def fetch(self, request: Request, entry: FileEntry, to: Path) -> Path:
        """Copy a checkpoint of the attempt into a folder here and return it."""

    def deliver(self, request: Request, file: Path) -> None:
        """Copy a checkpoint from here into the attempt's checkpoint folder, if it is not there already."""

    def storage(self, request: Request) -> Storage:
        """Return the files of the attempt's job on this host, to measure, remove or fetch them."""

    def trees(self) -> Trees:
        """Return the work folders that were shipped to this host."""

    def sweep(self) -> int:
        """Remove the temporary containers of this store that nobody uses any more; return how many there were."""

    def close(self) -> None: ...
