"""Counts what files take on the disk of this machine, exactly as `du` does: allocated blocks, every hard link once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from stat import S_ISDIR

from rung.runner.seams.storage import DiskUse

# What Linux counts blocks in, whatever the filesystem uses.
BLOCK = 512


def disk_use(paths: Iterable[Path]) -> list[DiskUse]:
    """Return what each path takes, with all that is in it. A file with several names counts at its first one only.

    Links are not followed, and a path that is not there takes nothing.
    """
    counted: set[tuple[int, int]] = set()
    return [_count(path, counted) for path in paths]


def _count(top: Path, counted: set[tuple[int, int]]) -> DiskUse:
    size, complete, waiting = 0, True, [top]
    while waiting:
        path = waiting.pop()
        try:
            found = path.lstat()
            key = found.st_dev, found.st_ino
            if key in counted:
                continue
            if found.st_nlink > 1 or S_ISDIR(found.st_mode):
                counted.add(key)
            size += found.st_blocks * BLOCK
            if S_ISDIR(found.st_mode):
                waiting += path.iterdir()
        except FileNotFoundError:
            continue
        except OSError:
            complete = False
    return DiskUse(size, complete)
