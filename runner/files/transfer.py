"""Copies checkpoints from a host to this machine and back, atomically.

Both sides compute the SHA-256, and a file gets its name only when they agree. Runs in worker threads.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from rung.jobs.model.errors import EngineError
from rung.jobs.model.terminal_text import clean
from rung.runner.files.fingerprint import MOST_FILES, folder_entry, local_files
from rung.runner.seams.engine import FileEntry
from rung.runner.seams.remote import Files, Remote, RemoteFile

CHUNK = 1 << 20
# A slow disk reads 100 MB/s; checkpoints may have many gigabytes.
CHECKSUM_SECONDS = 900.0
MOVE_SECONDS = 60.0
# On the host, incomplete files are in their own folder, where no checkpoint pattern matches them.
INCOMING = ".incoming"


def remote_entry(files: Files, name: str, found: RemoteFile) -> FileEntry:
    """Return the entry of a file or folder on a host."""
    if not found.is_folder:
        return FileEntry(name, found.size, found.written_at)
    inner = [(path, each.size, each.written_at) for path, each in remote_files(files, found.path)]
    return folder_entry(name, inner, found.written_at)


def remote_files(files: Files, folder: str) -> list[tuple[str, RemoteFile]]:
    """Return the files under a folder on a host, each with its path in it."""
    found: list[tuple[str, RemoteFile]] = []
    waiting = [folder]
    while waiting and len(found) < MOST_FILES:
        for each in files.entries(waiting.pop()):
            if each.is_folder:
                waiting.append(each.path)
            else:
                found.append((each.path[len(folder) + 1 :], each))
    return found


def fetch(remote: Remote, folder: str, entry: FileEntry, to: Path) -> Path:
    """Copy a checkpoint from a host into a folder here and return it. Its times are kept for the fingerprint."""
    source, draft = f"{folder}/{entry.name}", to / f".{entry.name}.part"
    try:
        to.mkdir(parents=True, exist_ok=True)
        clear(draft)
        if entry.is_folder:
            with _naming(source), remote.files() as files:
                parts = [(path, each.written_at) for path, each in remote_files(files, source)]
            for path, written_at in parts:
                _fetch_file(remote, f"{source}/{path}", draft / path, written_at)
        else:
            _fetch_file(remote, source, draft, entry.written_at)
        if entry.is_folder:
            draft.mkdir(exist_ok=True)
            clear(to / entry.name)
        return draft.replace(to / entry.name)
    except OSError as error:
        raise EngineError(f"{draft}: cannot be written: {error.strerror}") from None
    finally:
        clear(draft)


def _fetch_file(remote: Remote, source: str, draft: Path, written_at: float) -> None:
    draft.parent.mkdir(parents=True, exist_ok=True)
    ours = _receive(remote, source, draft)
    _check_checksums(remote, source, ours, remote_checksum(remote, source))
    os.utime(draft, (written_at, written_at))


def clear(path: Path) -> None:
    """Remove a copy that we made."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def _receive(remote: Remote, source: str, draft: Path) -> str:
    digest, offset = hashlib.sha256(), 0
    with _naming(source), remote.files() as files, draft.open("wb") as file:
        while chunk := files.read(source, offset, CHUNK):
            file.write(chunk)
            digest.update(chunk)
            offset += len(chunk)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Add the file's path to an EngineError."""
    try:
        yield
    except EngineError as error:
        raise EngineError(f"{error} ({path})") from None


def deliver(remote: Remote, file: Path, folder: str) -> None:
    """Copy a checkpoint from here into a folder on a host, if it is not there already."""
    target, draft = f"{folder}/{file.name}", f"{folder}/{INCOMING}/{file.name}"
    if not file.is_dir():
        if not _is_there(remote, file, target):
            _send(remote, file, draft)
            _put_in_place(remote, draft, target)
        return
    parts = [path for path, _, _ in local_files(file)]
    if all(_is_there(remote, file / path, f"{target}/{path}") for path in parts):
        return
    for path in parts:
        if not _is_there(remote, file / path, f"{draft}/{path}"):
            _send(remote, file / path, f"{draft}/{path}")
    with _naming(target), remote.files() as files:
        taken = files.stat(target) is not None
    if taken:
        # An earlier attempt left it incomplete; it is kept under another name.
        kept = ["mv", "-f", "-T", "--backup=numbered", "--", target, f"{draft}.replaced"]
        _run(remote, kept, f"{target} could not be moved away")
    _put_in_place(remote, draft, target)


def _is_there(remote: Remote, file: Path, target: str) -> bool:
    with _naming(target), remote.files() as files:
        there = files.stat(target)
    same = there is not None and not there.is_folder and there.size == file.stat().st_size
    return same and remote_checksum(remote, target) == local_checksum(file)


def _send(remote: Remote, file: Path, draft: str) -> None:
    ours = local_checksum(file)
    with _naming(draft), remote.files() as files:
        files.make_folder(str(PurePosixPath(draft).parent))
        with file.open("rb") as source:
            files.write(draft, iter(lambda: source.read(CHUNK), b""), 0o644)
    _check_checksums(remote, draft, ours, remote_checksum(remote, draft))


def _put_in_place(remote: Remote, draft: str, target: str) -> None:
    _run(remote, ["mv", "-f", "-T", "--", draft, target], f"{target} could not be moved into place")


def move_remote(remote: Remote, folder: str, names: Sequence[str], aside: str) -> None:
    """Move checkpoints on a host into another folder there; names that are gone are ignored."""
    if not names:
        return
    with _naming(aside), remote.files() as files:
        files.make_folder(aside)
        there = [name for name in names if files.stat(f"{folder}/{name}") is not None]
    for name in there:
        _run(remote, ["mv", "-f", "-T", "--", f"{folder}/{name}", f"{aside}/{name}"], f"{name} could not be set aside")


def _run(remote: Remote, argv: Sequence[str], failed: str) -> None:
    moved = remote.run(argv, timeout=MOVE_SECONDS)
    if moved.code != 0:
        raise EngineError(f"{remote.name}: {failed}: {_error_text(moved.err)}")


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
