"""Puts fetched files into a folder of the user: all or none, and never over a different file that nobody gave up."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rung.jobs.model.errors import EngineError, UsageError
from rung.jobs.model.terminal_text import clean
from rung.runner.files.own_folder import is_reached_by_link
from rung.runner.files.transfer import local_checksum
from rung.runner.seams.storage import OnBytes
from rung.runner.storage.pull import Choice

NAMED = 3


@dataclass(frozen=True)
class Delivered:
    """A file in the folder of the user. Not `new`: it was there already with the same content."""

    path: str
    size: int
    sha256: str
    new: bool


@dataclass(frozen=True)
class Delivery:
    """Where files go, and whether they may replace different ones."""

    to: Path
    force: bool = False

    def deliver(self, choices: Sequence[Choice], texts: dict[str, str], on_bytes: OnBytes) -> list[Delivered]:
        """Fetch the files and put them into the folder; `texts` are written beside them."""
        sizes = {f"{each.into}/{file.path}": file.size for each in choices for file in each.files}
        self._refuse([path for path, size in sizes.items() if self._has_other_size(path, size)])
        with self._draft() as draft:
            found = self._fetch(choices, draft, on_bytes)
            for name, text in texts.items():
                (draft / name).write_text(text, encoding="utf-8")
                found[name] = draft / name
            sums = {path: local_checksum(file) for path, file in found.items()}
            same = {path for path in found if self._is_same(path, sums[path])}
            self._refuse([path for path in found if path not in same and self._is_there(path)])
            for path, file in found.items():
                if path not in same:
                    (self.to / path).parent.mkdir(parents=True, exist_ok=True)
                    file.replace(self.to / path)
        return [Delivered(path, self._size(path), sums[path], path not in same) for path in found]

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """Make a hidden folder on the same disk, so that each file gets its name at once; it goes in any case."""
        made = not self.to.exists()
        try:
            self.to.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.to, prefix=".pull-") as draft:
                yield Path(draft)
        except OSError as error:
            raise EngineError(f"{error.filename or self.to}: cannot be written: {error.strerror}") from None
        finally:
            if made:
                with suppress(OSError):
                    self.to.rmdir()  # only if nothing came

    @staticmethod
    def _fetch(choices: Sequence[Choice], draft: Path, on_bytes: OnBytes) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for each in choices:
            folder = each.storage.fetch(each.folder, each.files, draft, on_bytes)
            found |= {f"{each.into}/{file.path}": folder / file.path for file in each.files}
        return found

    def _size(self, path: str) -> int:
        return (self.to / path).stat().st_size

    def _is_there(self, path: str) -> bool:
        return (self.to / path).exists() or is_reached_by_link(self.to, path)

    def _has_other_size(self, path: str, size: int) -> bool:
        if is_reached_by_link(self.to, path):
            return True
        file = self.to / path
        return file.exists() and not (file.is_file() and file.stat().st_size == size)

    def _is_same(self, path: str, checksum: str) -> bool:
        file = self.to / path
        return not is_reached_by_link(self.to, path) and file.is_file() and local_checksum(file) == checksum

    def _refuse(self, paths: Sequence[str]) -> None:
        linked = [path for path in paths if is_reached_by_link(self.to, path)]
        if linked:
            raise UsageError(f"{self.to / linked[0]}: a link is there, and Rung follows none; choose another --to")
        blocked = [path for path in paths if (self.to / path).is_dir() or not self._parents_are_folders(path)]
        if blocked:
            raise UsageError(f"{self.to / blocked[0]}: no file can be put there; choose another --to")
        if paths and not self.force:
            more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
            raise UsageError(
                f"{self.to} has different files: {clean(', '.join(paths[:NAMED]))}{more}; nothing was changed: "
                "choose another --to, or replace them with --force"
            )

    def _parents_are_folders(self, path: str) -> bool:
        parents = [self.to / parent for parent in PurePosixPath(path).parents]
        return all(parent.is_dir() for parent in parents if parent.exists())
