"""Reads and removes files below a folder of Rung's own on this machine, without following a link that lies in it.

A job on this machine runs as the user and can put a link anywhere in its folder, so every part of a path is opened by
itself.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISREG

from rung.jobs.model.errors import EngineError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without waiting, so that a pipe cannot hold us.
PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def plain_path(path: str) -> PurePosixPath:
    """Return a path that stays below its folder, or raise: no `..`, no absolute one, and not the folder itself."""
    found = PurePosixPath(path)
    if found.is_absolute() or not found.parts or ".." in found.parts or "\0" in path:
        raise EngineError(f"{path!r} is no path below the folder of the job")
    return found


@contextmanager
def opened_folder(root: Path, path: PurePosixPath) -> Iterator[int]:
    """Open a folder below `root`. Raises OSError: where a link is on the way, too."""
    folder = os.open(root, FOLDER)
    try:
        for part in path.parts:
            inner = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def remove_below(root: Path, path: str) -> None:
    """Remove a file or folder below `root`, if it is there; a link is removed itself, whatever it leads to."""
    wanted = plain_path(path)
    try:
        with opened_folder(root, wanted.parent) as folder:
            if S_ISDIR(os.lstat(wanted.name, dir_fd=folder).st_mode):
                shutil.rmtree(wanted.name, dir_fd=folder)
            else:
                os.unlink(wanted.name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise EngineError(f"{root / wanted}: cannot be removed: {error.strerror}") from None


def is_reached_by_link(root: Path, path: str) -> bool:
    """Tell whether a part of the path below `root` is a link."""
    parts = PurePosixPath(path).parts
    return any((root / PurePosixPath(*parts[: count + 1])).is_symlink() for count in range(len(parts)))


@contextmanager
def opened_file(root: Path, path: str) -> Iterator[int]:
    """Open a plain file below `root` for reading, or raise an EngineError: no link is followed, no pipe is opened."""
    wanted = plain_path(path)
    try:
        with opened_folder(root, wanted.parent) as folder:
            file = os.open(wanted.name, PLAIN, dir_fd=folder)
    except OSError as error:
        raise EngineError(f"{root / wanted}: cannot be read: {error.strerror}") from None
    try:
        if not S_ISREG(os.fstat(file).st_mode):
            raise EngineError(f"{root / wanted}: is no plain file")
        yield file
    finally:
        os.close(file)


def files_below(root: Path, path: str) -> list[tuple[str, int, float]]:
    """Return the plain files below a folder: path in it, size and time. Links are left out, and none is followed."""
    found: list[tuple[str, int, float]] = []
    try:
        with opened_folder(root, PurePosixPath(path)) as folder:
            for place, _, names, here in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
                for name in names:
                    stat = os.lstat(name, dir_fd=here)
                    if S_ISREG(stat.st_mode):
                        found.append((str(PurePosixPath(place, name)), stat.st_size, stat.st_mtime))
    except FileNotFoundError:
        return found
    except OSError as error:
        raise EngineError(f"{root / path}: cannot be listed: {error.strerror}") from None
    return found
