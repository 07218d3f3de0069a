"""Owns bringing checkpoints from one place to another: from a host here, from here to a host, each whole or not at all.

Both sides say the SHA-256 of what they have, and a file gets its name only when they agree. Runs beside the loop.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from jobs.errors import EngineError
from recovery.lines import clean
from runner.engine import FileEntry
from runner.remote import Remote

CHUNK = 1 << 20
# A slow disk reads 100 MB/s: room for checkpoints of many gigabytes.
CHECKSUM_SECONDS = 900.0
MOVE_SECONDS = 60.0
# On the host, files on their way lie in a folder of their own, where no pattern of checkpoints finds them.
INCOMING = ".incoming"


def fetch(remote: Remote, folder: str, entry: FileEntry, to: Path) -> Path:
    """Copy a file of a host into a folder here; return it. It keeps its time of writing, so it is known again."""
    source, draft = f"{folder}/{entry.name}", to / f".{entry.name}.part"
    try:
        to.mkdir(parents=True, exist_ok=True)
        ours = _receive(remote, source, draft)
        _agree(remote, source, ours, checksum_on(remote, source))
        os.utime(draft, (entry.written_at, entry.written_at))
        return draft.replace(to / entry.name)
    except OSError as error:
        raise EngineError(f"{draft}: cannot be written: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)


def _receive(remote: Remote, source: str, draft: Path) -> str:
    digest, offset = hashlib.sha256(), 0
    with _named(source), remote.files() as files, draft.open("wb") as file:
        while chunk := files.read(source, offset, CHUNK):
            file.write(chunk)
            digest.update(chunk)
            offset += len(chunk)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Say which file it was; a host that is away is that and nothing else."""
    try:
        yield
    except EngineError as error:
        if type(error) is not EngineError:
            raise
        raise EngineError(f"{error} ({path})") from None


def deliver(remote: Remote, file: Path, folder: str) -> None:
    """Copy a file from here into a folder of a host; nothing is done where it is there already."""
    target, draft = f"{folder}/{file.name}", f"{folder}/{INCOMING}/{file.name}"
    ours = checksum_here(file)
    with _named(target), remote.files() as files:
        there = files.stat(target)
        if there is not None and there.size == file.stat().st_size and checksum_on(remote, target) == ours:
            return
        files.make_folder(str(PurePosixPath(draft).parent))
        with file.open("rb") as source:
            files.write(draft, iter(lambda: source.read(CHUNK), b""), 0o644)
    _agree(remote, draft, ours, checksum_on(remote, draft))
    moved = remote.run(["mv", "-f", "-T", "--", draft, target], timeout=MOVE_SECONDS)
    if moved.code != 0:
        raise EngineError(f"{remote.name}: {target} could not be put in its place: {_words(moved.err)}")


def checksum_here(file: Path) -> str:
    try:
        with file.open("rb") as source:
            return hashlib.file_digest(source, "sha256").hexdigest()
    except OSError as error:
        raise EngineError(f"{file}: cannot be read: {error.strerror}") from None


def checksum_on(remote: Remote, path: str) -> str:
    """Return what the host itself says of a file's content."""
    ran = remote.run(["sha256sum", "--", path], timeout=CHECKSUM_SECONDS)
    # A name with a backslash or a line break is announced by a backslash before the sum.
    said = ran.out.decode("ascii", "replace").lstrip("\\").split(" ")[0]
    if ran.code != 0 or len(said) != 64:
        raise EngineError(f"{remote.name}: {path} cannot be summed: {_words(ran.err)}")
    return said


def _agree(remote: Remote, path: str, ours: str, theirs: str) -> None:
    if ours != theirs:
        raise EngineError(f"{remote.name}: {path} did not come through whole ({ours[:12]} here, {theirs[:12]} there)")


def _words(err: bytes) -> str:
    return clean(err.decode("utf-8", "replace").strip()[-200:]) or "it did not say why"
