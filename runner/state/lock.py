"""Locks the store, so that it has at most one controller."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from rung.jobs.model.errors import StoreError, StoreOwned
from rung.jobs.model.paths import HomePaths

# struct flock: an exclusive lock from byte 0 to the end. It belongs to the open file and ends with its last holder.
WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


@contextmanager
def ownership(paths: HomePaths) -> Iterator[None]:
    """Hold the lock; the system releases it when this process ends, however it ends."""
    with _opened(paths) as lock:
        try:
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, WHOLE_FILE)
        except BlockingIOError:
            owner = os.pread(lock.fileno(), 20, 0).decode("ascii", "replace").strip() or "unknown"
            raise StoreOwned(
                f"{paths.home}: a controller is already running (pid {owner}); "
                "use that one, or set RUNG_HOME to another folder"
            ) from None
        try:
            os.ftruncate(lock.fileno(), 0)
            os.write(lock.fileno(), str(os.getpid()).encode("ascii"))
        except OSError as error:
            raise StoreError(f"{paths.lock}: cannot be written: {error.strerror}; free some disk space") from None
        yield


def _opened(paths: HomePaths) -> BinaryIO:
    try:
        return paths.lock.open("ab+", buffering=0)
    except OSError as error:
        raise StoreError(f"{paths.lock}: cannot be opened: {error.strerror}; check the folder's permissions") from None


def is_owned(paths: HomePaths) -> bool:
    """Tell whether a controller owns the store now; only tests the lock, so it never blocks a controller."""
    try:
        with paths.lock.open("rb") as lock:
            answer = fcntl.fcntl(lock, fcntl.F_OFD_GETLK, WHOLE_FILE)
    except FileNotFoundError:
        return False
    (kind,) = struct.unpack_from("h", answer)
    return bool(kind != fcntl.F_UNLCK)
