"""Defines the interface to what jobs keep on a disk, on this machine or on a host: measure, remove, fetch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

# Takes how many more bytes have come.
OnBytes = Callable[[int], None]


@dataclass(frozen=True)
class DiskUse:
    """Allocated bytes, as `du` counts them. Not `complete`: some folders could not be read, so that it is more."""

    size: int = 0
    complete: bool = True

    def __add__(self, other: DiskUse) -> DiskUse:
        return DiskUse(self.size + other.size, self.complete and other.complete)


def total_use(uses: Iterable[DiskUse]) -> DiskUse:
    return sum(uses, DiskUse())


@dataclass(frozen=True)
class FoundFile:
    """A plain file: its path in the folder that was listed, its size and the time it was written."""

    path: str
    size: int
    written_at: float


@dataclass(frozen=True)
class ShippedTree:
    """A tree on a host: since when it is there, and the jobs with attempts that have a copy of it."""

    id: str
    age: float
    jobs: frozenset[str] = field(default_factory=frozenset)


class Storage(Protocol):
    """The files of one job in one place. Paths are relative to the folder of the job there, and never leave it."""

    where: str

    def disk_use(self, paths: Sequence[str]) -> dict[str, DiskUse]:
        """Return what each path takes that is there; a file with several names counts once."""

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files and folders, as far as they are there; links are removed, and never followed."""

    def remove_all(self) -> None:
        """Remove the folder of the job with all that is in it."""

    def files(self, folder: str, pattern: str) -> list[FoundFile]:
        """Return the plain files of a folder that the pattern may match; only here, an absolute folder is allowed."""

    def fetch(self, folder: str, files: Sequence[FoundFile], to: Path, on_bytes: OnBytes) -> Path:
        """Copy these files into a new folder in `to`, all or none, compared by SHA-256, and return that folder."""


class Trees(Protocol):
    """The work folders that were shipped to a host."""

    def list(self) -> list[ShippedTree]:
        """Return the trees that no container uses, without the one that every container gets."""

    def disk_use(self, ids: Sequence[str]) -> DiskUse: ...

    def remove(self, ids: Sequence[str]) -> None: ...
