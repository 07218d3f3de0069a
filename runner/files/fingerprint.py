"""Describes a checkpoint without opening it: a file or a folder becomes one entry with a fingerprint.

The fingerprint changes whenever the file is written again, so that a stored verdict always fits the content.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from rung.runner.seams.engine import FileEntry

# Bytes read at the beginning, middle and end of a file.
SAMPLE_BYTES = 4096
# A folder with more files than this is not a checkpoint.
MOST_FILES = 10_000


def is_hidden(name: str) -> bool:
    """Tell whether a name is not a checkpoint: files that are being written, and files set aside."""
    return name.startswith(".")


def folder_entry(name: str, files: Iterable[tuple[str, int, float]], made_at: float) -> FileEntry:
    """Return the entry of a folder, from the path, size and time of each of its files."""
    listed = sorted(files)
    lines = "\n".join(f"{path}\0{size}\0{float(at)!r}" for path, size, at in listed)
    digest = hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    newest = max((at for _, _, at in listed), default=made_at)
    return FileEntry(name, sum(size for _, size, _ in listed), float(newest), is_folder=True, digest=digest)


def local_entry(path: Path, *, sampled: bool) -> FileEntry | None:
    """Return the entry of a file or folder on this machine; None for anything else. Raises OSError."""
    stat = path.lstat()
    if S_ISREG(stat.st_mode):
        digest = _samples(path, stat.st_size) if sampled else ""
        return FileEntry(path.name, stat.st_size, stat.st_mtime, digest=digest)
    if S_ISDIR(stat.st_mode):
        return folder_entry(path.name, local_files(path), stat.st_mtime)
    return None


def local_files(folder: Path) -> list[tuple[str, int, float]]:
    """Return the plain files under a folder on this machine; links are not followed."""
    found: list[tuple[str, int, float]] = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            stat = path.lstat()
            if S_ISREG(stat.st_mode) and len(found) < MOST_FILES:
                found.append((path.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime))
    return found


def _samples(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for offset in sorted({0, max(size // 2 - SAMPLE_BYTES // 2, 0), max(size - SAMPLE_BYTES, 0)}):
            file.seek(offset)
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()[:16]
