"""Turns SQLite's errors into one line for a person, and tells those that pass by themselves from the others."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from rung.jobs.model.errors import StoreBlocked, StoreError

# Less than this is a full disk: a decision with its events needs some pages, and so does a start.
LEAST_FREE = 16 << 10
# The lower byte of SQLite's error codes.
_FULL, _IO, _BUSY, _LOCKED, _CANNOT_OPEN = 13, 10, 5, 6, 14


def store_error(path: Path, error: sqlite3.Error) -> StoreError:
    """Return the error to raise for an error of SQLite."""
    code, what = getattr(error, "sqlite_errorcode", 0) & 0xFF, str(error)
    if code == _FULL:
        return StoreBlocked(f"{path}: {what}; free some disk space and try again; nothing written before is lost")
    # SQLite reports these when its shared memory or its journal finds no room.
    if code == _IO or (code == _CANNOT_OPEN and free_bytes(path.parent) < LEAST_FREE):
        advice = "the disk is full or failing; free some space and try again, nothing written before is lost"
        return StoreBlocked(f"{path}: {what}; {advice}")
    if code in (_BUSY, _LOCKED):
        return StoreBlocked(f"{path}: {what}; another process is writing; try again")
    return StoreError(f"{path}: {what}; check the file and its permissions, or set RUNG_HOME to another folder")


def free_bytes(folder: Path) -> float:
    """Return the free space that we may use on the disk of a folder; infinite where the system does not tell."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return float("inf")
    return disk.f_bavail * disk.f_frsize if disk.f_blocks else float("inf")


def require_room(home: Path) -> None:
    """Raise if the disk of the store is full, before something is begun that could not be recorded."""
    free = free_bytes(home)
    if free < LEAST_FREE:
        why = f"its disk is full ({int(free) >> 10} KiB free)"
        raise StoreBlocked(f"{home}: {why}; free some disk space; nothing written before is lost")
