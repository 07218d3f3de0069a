"""The files of a job on this machine: measures, removes and copies them, and follows no link."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import HomePaths
from rung.runner.files.disk_use import disk_use
from rung.runner.files.own_folder import files_below, opened_file, plain_path, remove_below
from rung.runner.files.transfer import CHUNK, clear, local_checksum
from rung.runner.seams.storage import DiskUse, FoundFile, OnBytes

HERE = "here"


class LocalStorage:
    """The folder of one job under RUNG_HOME (Storage of seams/storage.py)."""

    where = HERE

    def __init__(self, paths: HomePaths, job_id: str) -> None:
        # Every part below the home is opened by itself: the job may have put a link in place of each of them.
        self._home, self._own = paths.home, f"jobs/{job_id}"

    def disk_use(self, paths: Sequence[str]) -> dict[str, DiskUse]:
        there = [path for path in paths if os.path.lexists(self._home / self._below(path))]
        return dict(zip(there, disk_use([self._home / self._below(path) for path in there]), strict=True))

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            remove_below(self._home, f"{self._own}/{plain_path(path)}")

    def remove_all(self) -> None:
        remove_below(self._home, self._own)

    def files(self, folder: str, pattern: str) -> list[FoundFile]:
        return [FoundFile(*found) for found in files_below(*self._place(folder))]

    def fetch(self, folder: str, files: Sequence[FoundFile], to: Path, on_bytes: OnBytes) -> Path:
        root, below = self._place(folder)
        draft = to / secrets.token_hex(8)
        try:
            for each in files:
                target = draft / plain_path(each.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                _copy(root, f"{below}/{each.path}".lstrip("/"), target, on_bytes)
                os.utime(target, (each.written_at, each.written_at))
        except OSError as error:
            clear(draft)
            raise EngineError(f"{draft}: cannot be written: {error.strerror}") from None
        return draft

    def _below(self, path: str) -> str:
        return self._own if path == "." else f"{self._own}/{plain_path(path)}"

    def _place(self, folder: str) -> tuple[Path, str]:
        """Return where to begin without links, and the folder from there; one of the user's own is taken as it is."""
        return (Path(folder), "") if folder.startswith("/") else (self._home, self._below(folder))


def _copy(root: Path, path: str, target: Path, on_bytes: OnBytes) -> None:
    digest = hashlib.sha256()
    with opened_file(root, path) as source, target.open("xb") as file:
        while chunk := os.read(source, CHUNK):
            file.write(chunk)
            digest.update(chunk)
            on_bytes(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    if local_checksum(target) != digest.hexdigest():
        raise EngineError(f"{target}: what was written is not what was read")
