"""Keeps where the reading of a log stands, in a small file beside it, so that a new controller goes on from there.

The file is never trusted. What reads the log, the settings of the job, the log itself and the bytes before the place
must be those of before; else the log is read from its start, which comes to the same state.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG

import rung
from rung.runner.files.log_file import LogFile

# The bytes before the place that must be the same.
LAST_BYTES = 4096
# A state is about 100 kB; the lines it holds are bounded too.
MOST_BYTES = 16 << 20
PRIVATE = 0o600
# What decides how a log is read. A change in any of these files makes all cursors void.
_READERS = (
    *("recovery/detect", "recovery/logs", "recovery/monitors", "recovery/shapes", "recovery/signatures"),
    *("recovery/series", "jobs/model", "jobs/spec", "runner/log_reading", "runner/series", "runner/files"),
)


@dataclass(frozen=True)
class Place:
    """A place in a log, and all that must be the same to go on from there."""

    offset: int
    in_line: bool
    inode: int
    last: str
    settings: str
    code: str

    @classmethod
    def of(cls, log: LogFile, settings: str) -> Place:
        """Return the place up to which a log has been read."""
        last = hashlib.sha256(log.before(LAST_BYTES)).hexdigest()
        return cls(log.offset, log.in_line, _inode(log.path), last, settings, code_hash())


@dataclass(frozen=True)
class Cursor:
    """What the file holds. `sampled`: numbers of the log were left out."""

    place: Place | None
    sampled: bool
    state: str = ""


def cursor_path(log: Path) -> Path:
    return log.with_name(f"{log.name}.cursor")


def write_cursor(log: LogFile, settings: str, state: str, *, sampled: bool) -> None:
    """Put a state in its place; one that cannot be written is left out, and the log is read from an earlier place."""
    body = state.encode()
    head = {**asdict(Place.of(log, settings)), "sampled": sampled, "sum": hashlib.sha256(body).hexdigest()}
    path = cursor_path(log.path)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
        with os.fdopen(file, "wb") as opened:
            opened.write(json.dumps(head).encode() + b"\n" + body)
        draft.rename(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def read_cursor(log: Path, settings: str) -> Cursor | None:
    """Return the cursor of a log; without a place if it does not fit. None: there is none, or it is damaged."""
    head, _, body = _bytes(cursor_path(log)).partition(b"\n")
    try:
        found = json.loads(head)
        sampled, total = bool(found.pop("sampled")), found.pop("sum")
        place = Place(**found)
        is_sound = total == hashlib.sha256(body).hexdigest() and type(place.offset) is int and place.offset >= 0
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    fits = is_sound and place == Place.of(LogFile(log, place.offset, in_line=place.in_line), settings)
    return Cursor(place, sampled, body.decode()) if fits else Cursor(None, sampled)


def _bytes(path: Path) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        return opened.read() if S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES else b""


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Return a hash of the code that reads logs, and of the Python that runs it."""
    taken = hashlib.sha256(sys.version.encode())
    for path in _sources():
        taken.update(path.name.encode() + path.read_bytes())
    return taken.hexdigest()


def _sources() -> Iterator[Path]:
    for root in rung.__path__:
        for folder in _READERS:
            yield from sorted((Path(root) / folder).glob("*.py"))
