"""Copies checkpoints between this machine and a folder of a host that no job can write, completely or not at all.

Both sides compute the SHA-256, and a file gets its name only when they agree. Runs in worker threads. What a host
reports is not trusted: names are checked, no more bytes are taken than the listing said, and nothing is written here
through a link.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from rung.jobs.model.errors import EngineError
from rung.jobs.model.terminal_text import clean
from rung.runner.files.fingerprint import MOST_FILES, folder_entry, local_files
from rung.runner.seams.engine import FileEntry
from rung.runner.seams.remote import Files, Remote, RemoteFile
from rung.runner.seams.storage import OnBytes

CHUNK = 1 << 20
# A slow disk reads 100 MB/s; checkpoints may have many gigabytes.
CHECKSUM_SECONDS = 900.0
# Folders of a checkpoint lie no deeper in each other.
MOST_DEPTH = 32


def fetch(remote: Remote, folder: str, entry: FileEntry, to: Path, on_bytes: OnBytes = lambda count: None) -> Path:
    """Copy a checkpoint from a host into a folder here and return it. Its times are kept for the fingerprint."""
    source, draft = f"{folder}/{entry.name}", to / f".{entry.name}.part"
    try:
        to.mkdir(parents=True, exist_ok=True)
        clear(draft)
        if entry.is_folder:
            draft.mkdir(mode=0o700)
            for path, found in _parts(remote, source, entry):
                (draft / path).parent.mkdir(parents=True, exist_ok=True)
                _fetch_file(remote, f"{source}/{path}", draft / path, found, on_bytes)
            clear(to / entry.name)
        else:
            _fetch_file(remote, source, draft, entry, on_bytes)
        return draft.replace(to / entry.name)
    except OSError as error:
        raise EngineError(f"{draft}: cannot be written: {error.strerror}") from None
    finally:
        clear(draft)


def _parts(remote: Remote, folder: str, entry: FileEntry) -> list[tuple[str, RemoteFile]]:
    """Return the files of a checkpoint folder; raise if they are not those of its entry."""
    with _naming(folder), remote.files() as files:
        parts = remote_files(files, folder)
    listed = folder_entry(entry.name, [(path, each.size, each.written_at) for path, each in parts], entry.written_at)
    if listed.fingerprint != entry.fingerprint:
        raise EngineError(f"{remote.name}: {folder} was changed while it was copied; it is tried again")
    return parts


def remote_files(files: Files, folder: str) -> list[tuple[str, RemoteFile]]:
    """Return the files under a folder on a host, each with its path in it."""
    found: list[tuple[str, RemoteFile]] = []
    waiting = [(folder, 0)]
    while waiting:
        place, depth = waiting.pop()
        for each in files.entries(place):
            if not each.is_folder:
                found.append((each.path[len(folder) + 1 :], each))
            elif depth < MOST_DEPTH:
                waiting.append((each.path, depth + 1))
        if len(found) + len(waiting) > MOST_FILES:
            raise EngineError(f"{folder} has more than {MOST_FILES} files")
    return found


def _fetch_file(remote: Remote, source: str, draft: Path, found: FileEntry | RemoteFile, on_bytes: OnBytes) -> None:
    ours = _receive(remote, source, draft, found, on_bytes)
    _check_checksums(remote, source, ours, remote_checksum(remote, source))
    os.utime(draft, (found.written_at, found.written_at))


def clear(path: Path) -> None:
    """Remove a copy that we made."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def _receive(remote: Remote, source: str, draft: Path, found: FileEntry | RemoteFile, on_bytes: OnBytes) -> str:
    digest, offset, size = hashlib.sha256(), 0, found.size
    made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with _naming(source), remote.files() as files, os.fdopen(made, "wb") as file:
        while offset < size and (chunk := files.read(source, offset, min(CHUNK, size - offset))):
            file.write(chunk)
            digest.update(chunk)
            offset += len(chunk)
            on_bytes(len(chunk))
        file.flush()
        os.fsync(file.fileno())
        there = files.stat(source)
    if there is not None and int(there.written_at) != int(found.written_at):
        # A verdict belongs to the file that was listed. The copy of another one must not get it.
        raise EngineError(f"{remote.name}: {source} was changed while it was copied; it is tried again")
    return digest.hexdigest()


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Add the file's path to an EngineError."""
    try:
        yield
    except EngineError as error:
        raise EngineError(f"{error} ({path})") from None


def send(remote: Remote, file: Path, folder: str) -> None:
    """Copy a checkpoint from here into a folder on a host."""
    if not file.is_dir():
        _send_file(remote, file, f"{folder}/{file.name}")
        return
    for path, _, _ in local_files(file):
        _send_file(remote, file / path, f"{folder}/{file.name}/{path}")


def _send_file(remote: Remote, file: Path, target: str) -> None:
    ours = local_checksum(file)
    with _naming(target), remote.files() as files:
        files.make_folder(str(PurePosixPath(target).parent))
        with file.open("rb") as source:
            files.write(target, iter(lambda: source.read(CHUNK), b""), 0o644)
    _check_checksums(remote, target, ours, remote_checksum(remote, target))


def local_checksums(file: Path) -> dict[str, str]:
    """Return the SHA-256 of a checkpoint's files, by their paths beginning with its name."""
    if not file.is_dir():
        return {file.name: local_checksum(file)}
    return {f"{file.name}/{path}": local_checksum(file / path) for path, _, _ in local_files(file)}


def local_checksum(file: Path) -> str:
    try:
        with file.open("rb") as source:
            return hashlib.file_digest(source, "sha256").hexdigest()
    except OSError as error:
        raise EngineError(f"{file}: cannot be read: {error.strerror}") from None


def remote_checksum(remote: Remote, path: str) -> str:
    """Return the SHA-256 of a file, computed on the host."""
    ran = remote.run(["sha256sum", "--", path], timeout=CHECKSUM_SECONDS)
    # For a name with a backslash or a line break, sha256sum prints a backslash before the sum.
    checksum = ran.out.decode("ascii", "replace").lstrip("\\").split(" ")[0]
    if ran.code != 0 or len(checksum) != 64:
        raise EngineError(f"{remote.name}: {path} cannot be read for its checksum: {_error_text(ran.err)}")
    return checksum


def _check_checksums(remote: Remote, path: str, ours: str, theirs: str) -> None:
    if ours != theirs:
        raise EngineError(f"{remote.name}: {path} did not come through whole ({ours[:12]} here, {theirs[:12]} there)")


def _error_text(err: bytes) -> str:
    return clean(err.decode("utf-8", "replace").strip()[-200:]) or "no error message"
