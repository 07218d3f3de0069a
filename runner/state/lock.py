"""Locks the store, so that it has at most one controller, and nobody removes files that a command begins to use."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from rung.jobs.model.errors import StoreError, StoreOwned, UsageError
from rung.jobs.model.paths import HomePaths

# struct flock: an exclusive lock from byte 0 to the end. It belongs to the open file and ends with its last holder.
WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)

# The note of a controller that a person has stopped.
STOPPED = "stopped"


@contextmanager
def ownership(paths: HomePaths) -> Iterator[None]:
    """Hold the lock; the system releases it when this process ends, however it ends."""
    with _opened(paths) as lock:
        try:
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, WHOLE_FILE)
        except BlockingIOError:
            raise StoreOwned(
                f"{paths.home}: a controller is already running (pid {named_pid(paths) or 'unknown'}); "
                "use that one, stop it with `rung controller --stop`, or set RUNG_HOME to another folder"
            ) from None
        put_note(paths, "")
        yield


def _opened(paths: HomePaths) -> BinaryIO:
    try:
        # Never truncated here: its owner writes it.
        return open(paths.lock, "rb+", buffering=0, opener=_opener)
    except OSError as error:
        raise StoreError(f"{paths.lock}: cannot be opened: {error.strerror}; check the folder's permissions") from None


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o600)


def put_note(paths: HomePaths, text: str) -> None:
    """Write the owner's pid, and what it has to tell those who ask. It fits the block that the file has already, so
    that this works on a full disk; where it does not, the pid is not known to others, and the lock holds all the same.
    """
    line = "\n".join(filter(None, [str(os.getpid()), text])).encode()[:1000]
    with suppress(OSError), paths.lock.open("rb+", buffering=0) as lock:
        os.pwrite(lock.fileno(), line, 0)
        os.ftruncate(lock.fileno(), len(line))


def note(paths: HomePaths) -> str:
    """Return what the controller has to tell, such as why it pauses; empty if it runs as usual, or not at all."""
    if not is_owned(paths):
        return ""
    return paths.lock.read_text(encoding="utf-8", errors="replace").partition("\n")[2].strip()


def was_stopped(paths: HomePaths) -> bool:
    """Tell whether the last controller was stopped by a person, and no other one runs since."""
    if is_owned(paths):
        return False
    with suppress(OSError):
        return paths.lock.read_bytes().partition(b"\n")[2] == STOPPED.encode()
    return False


def named_pid(paths: HomePaths) -> int | None:
    """Return the pid that the last owner wrote; it may be gone."""
    with suppress(OSError, ValueError):
        return int(paths.lock.read_bytes()[:20].partition(b"\n")[0])
    return None


def is_owned(paths: HomePaths) -> bool:
    """Tell whether a controller owns the store now; only tests the lock, so it never blocks a controller."""
    try:
        with paths.lock.open("rb") as lock:
            answer = fcntl.fcntl(lock, fcntl.F_OFD_GETLK, WHOLE_FILE)
    except FileNotFoundError:
        return False
    (kind,) = struct.unpack_from("h", answer)
    return bool(kind != fcntl.F_UNLCK)


# Removing files, apart from commands that begin to use them: `retry` and `launch --from`


@contextmanager
def removing(paths: HomePaths) -> Iterator[None]:
    """Hold the lock for the removal of files; the system releases it when this process ends, however it ends."""
    others = "another `rung rm`, `rung prune`, `rung retry` or `rung launch --from` is at work"
    with _removal_locked(paths, fcntl.LOCK_EX, others):
        yield


@contextmanager
def using(paths: HomePaths) -> Iterator[None]:
    """Hold off the removal of files while a command begins to use some; many may do so at the same time."""
    with _removal_locked(paths, fcntl.LOCK_SH, "`rung rm` or `rung prune` removes files now"):
        yield


@contextmanager
def _removal_locked(paths: HomePaths, kind: int, refusal: str) -> Iterator[None]:
    lock = os.open(paths.removal_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{paths.home}: {refusal}; try again when it has ended") from None
        yield
    finally:
        os.close(lock)
