"""Makes an attempt's own copy of the workdir, with edited config files; the originals stay unchanged.

What git or Docker ignores is not copied. On this machine it is linked, because data is often there.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from rung.jobs.config_files.edit import MAX_CHARS, find, set_keys
from rung.jobs.model.errors import ConfigFileError, EngineError
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.files.ignore import ALWAYS, Ignored
from rung.runner.files.tree import MOST_BYTES, MOST_FILES, File, Tree, size_text
from rung.runner.seams.engine import FileEdit


def read_keys(spec: JobSpec, workdir: Path) -> dict[str, dict[str, Any]]:
    """Return the values in a job's config files, by knob and location; raise ConfigFileError for a missing one."""
    found: dict[str, dict[str, Any]] = {}
    for name, keys in spec.knobs.files.items():
        text = _read(workdir, name)
        for knob, several in keys.items():
            found.setdefault(knob, {}).update({f"{name}: {key}": find(text, name, key).value for key in several})
    return found


def edited_texts(workdir: Path, edits: Sequence[FileEdit]) -> dict[str, str]:
    """Return the new text of every edited file, by its path."""
    return {edit.path: set_keys(_read(workdir, edit.path), edit.path, edit.values) for edit in edits}


def _read(workdir: Path, name: str) -> str:
    path = workdir / name
    try:
        if not path.resolve().is_relative_to(workdir.resolve()):
            raise ConfigFileError(f"{name}: leads out of the workdir, to {path.resolve()}")
        with path.open("rb") as file:
            return file.read(4 * MAX_CHARS).decode("utf-8")
    except OSError as error:
        raise ConfigFileError(f"{name}: cannot be read in {workdir}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigFileError(f"{name}: is not UTF-8 text") from None


def make_copy(source: Path, work: Path, edits: Sequence[FileEdit], home: Path) -> None:
    """Make a complete copy of a folder at `work`, with its config files edited, if there is none yet."""
    if work.exists():
        return
    part = work.with_suffix(".part")
    try:
        texts = edited_texts(source, edits)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        _Copy(source, part, home, texts).folder("")
        for name, text in texts.items():
            _write(part, name, text)
        part.rename(work)
    except ConfigFileError as error:
        raise EngineError(str(error)) from None
    except OSError as error:
        raise EngineError(f"{error.filename or work}: cannot be copied: {error.strerror}") from None


def _write(part: Path, name: str, text: str) -> None:
    target = part / name
    if not target.parent.resolve().is_relative_to(part.resolve()):
        raise EngineError(f"{name}: lies behind a link that leads out of the workdir; name the file itself")
    mode = target.stat().st_mode
    target.unlink()
    target.write_text(text, encoding="utf-8", newline="")
    target.chmod(mode)


class _Copy:
    """Copies a folder file by file, up to a limit."""

    def __init__(self, source: Path, target: Path, home: Path, edited_texts: Iterable[str]) -> None:
        self._source, self._target = source.resolve(), target
        # Edited files are copied even if they are ignored, and so are the folders they are in.
        self._edited = {
            str(path) for name in edited_texts for path in (PurePosixPath(name), *PurePosixPath(name).parents)
        }
        self._ignored, self._home = Ignored(source), home.resolve()
        self._bytes = self._files = 0

    def folder(self, folder: str) -> None:
        for entry in sorted((self._source / folder).iterdir()):
            path = f"{folder}{entry.name}"
            # Rung's own home may be in the workdir, and the copy in that.
            if entry == self._home or entry.name in ALWAYS:
                continue
            is_folder = entry.is_dir() and not entry.is_symlink()
            left_out = path not in self._edited and self._ignored.excludes(path, folder=is_folder)
            if left_out or entry.is_symlink():
                self._link(entry, path)
            elif is_folder:
                (self._target / path).mkdir()
                self.folder(f"{path}/")
            elif entry.is_file():
                self._count(entry)
                shutil.copy2(entry, self._target / path)

    def _link(self, entry: Path, path: str) -> None:
        """Link to what is not copied; a link that stays inside the folder is copied as it is."""
        inside = entry.is_symlink() and not entry.readlink().is_absolute()
        inside = inside and entry.resolve().is_relative_to(self._source)
        (self._target / path).symlink_to(entry.readlink() if inside else entry)

    def _count(self, entry: Path) -> None:
        self._bytes += entry.stat().st_size
        self._files += 1
        if self._bytes > MOST_BYTES or self._files > MOST_FILES:
            raise EngineError(
                f"workdir {self._source} has more than {size_text(MOST_BYTES)} or {MOST_FILES} files to be copied for "
                f"knobs.files, at {entry}: list data in .gitignore, then it is only linked"
            )


def with_edits(tree: Tree, texts: Mapping[str, str]) -> tuple[Tree, dict[str, bytes]]:
    """Return the tree with the edited files in place of the originals, and their content."""
    content = {name: text.encode("utf-8") for name, text in texts.items()}
    files, folders = dict(tree.files), dict.fromkeys(tree.folders)
    for name, data in content.items():
        executable = name in files and files[name].executable
        files[name] = File(hashlib.sha256(data).hexdigest(), executable, len(data))
        # A file that git ignores is shipped when it is edited, with the folders it is in.
        above = [str(parent) for parent in PurePosixPath(name).parents][:-1]
        folders |= dict.fromkeys(reversed(above))
    links = {path: target for path, target in tree.links.items() if path not in content}
    return replace(tree, files=files, links=links, folders=tuple(folders)), content
