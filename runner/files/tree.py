"""Describes a folder by a manifest of its content, and packs the archive of what a host does not have.

The same content is the same tree, whatever the times and owners of its files. Nothing here contacts a host.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rung.jobs.model.errors import EngineError

MOST_BYTES = 1 << 30
MOST_FILES = 20_000
CHUNK_BYTES = 1 << 18
BLOCK = tarfile.BLOCKSIZE

# Tells whether a path, which may be a folder, is not shipped.
Excluded = Callable[[str, bool], bool]


@dataclass(frozen=True)
class File:
    sha256: str
    executable: bool
    size: int


@dataclass(frozen=True)
class Tree:
    """The content of a folder: its files, its links and its folders, by their paths in it."""

    files: Mapping[str, File] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()

    @cached_property
    def manifest(self) -> bytes:
        files = {path: [file.sha256, file.executable, file.size] for path, file in sorted(self.files.items())}
        content = {"files": files, "links": dict(sorted(self.links.items())), "folders": sorted(self.folders)}
        return json.dumps(content, separators=(",", ":")).encode("ascii")

    @cached_property
    def id(self) -> str:
        return hashlib.sha256(self.manifest).hexdigest()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())


def read_manifest(data: bytes) -> Tree:
    """Return the tree of a manifest, or an empty one if the manifest is not valid."""
    try:
        content = json.loads(data)
        files = {str(path): File(str(sha), bool(run), int(size)) for path, (sha, run, size) in content["files"].items()}
        return Tree(files, content["links"], tuple(content["folders"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Tree()


def scan(root: Path, excluded: Excluded, *, most: int = MOST_BYTES) -> Tree:
    """Return the tree of the files to ship; refuse a folder that is too large."""
    found = _Found(root)
    try:
        found.walk("", excluded)
        _refuse_too_much(found, most)
        files = {path: _file(root / path, status) for path, status in found.files.items()}
    except OSError as error:
        raise EngineError(f"{error.filename or root}: cannot be read: {error.strerror}") from None
    return Tree(files, found.links, tuple(found.folders))


class _Found:
    """The entries found in a folder, without their content."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[str, os.stat_result] = {}
        self.links: dict[str, str] = {}
        self.folders: list[str] = []

    def walk(self, folder: str, excluded: Excluded) -> None:
        with os.scandir(self.root / folder) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                path = f"{folder}{entry.name}"
                is_folder = entry.is_dir(follow_symlinks=False)
                if excluded(path, is_folder):
                    continue
                if is_folder:
                    self.folders.append(path)
                    self.walk(f"{path}/", excluded)
                elif entry.is_symlink():
                    self.links[path] = self._link(path)
                elif entry.is_file(follow_symlinks=False):
                    self.files[path] = entry.stat(follow_symlinks=False)

    def _link(self, path: str) -> str:
        target = str((self.root / path).readlink())
        leads = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if target.startswith("/") or leads.startswith("../") or leads == "..":
            raise EngineError(
                f"{self.root / path} leads out of the workdir, to {target}: "
                "list it in .gitignore or .dockerignore, and give data as a volume"
            )
        return target


def _refuse_too_much(found: _Found, most: int) -> None:
    total, many = sum(status.st_size for status in found.files.values()), len(found.files)
    if total <= most and many <= MOST_FILES:
        return
    shares: dict[str, int] = {}
    for path, status in found.files.items():
        top = path.partition("/")[0]
        shares[top] = shares.get(top, 0) + (status.st_size if total > most else 1)
    largest = max(shares, key=lambda top: shares[top])
    raise EngineError(
        f"workdir {found.root} has {size_text(total)} in {many} files, at most {size_text(most)} in {MOST_FILES} are "
        f"shipped; most of it is {largest}: list it in .gitignore or .dockerignore, and give data as a volume"
    )


def size_text(size: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f} {unit}"
    return f"{size} bytes"


def _file(path: Path, status: os.stat_result) -> File:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return File(digest, bool(status.st_mode & stat.S_IXUSR), status.st_size)


def archive(
    tree: Tree, root: Path, under: str, known: Mapping[File, str], replaced: Mapping[str, bytes] | None = None
) -> Iterator[bytes]:
    """Yield the tar of a tree, in a folder `under`; content that is `known` on the host is only linked there.

    `replaced` has the content of files that differ from those in `root`.
    """
    replaced = replaced or {}
    yield from _member(f"{under}/files", tarfile.DIRTYPE, 0o755)
    for folder in tree.folders:
        yield from _member(f"{under}/files/{folder}", tarfile.DIRTYPE, 0o755)
    for path, file in tree.files.items():
        name = f"{under}/files/{path}"
        if file in known:
            yield from _member(name, tarfile.LNKTYPE, 0o644, linkname=known[file])
        else:
            yield from _member(name, tarfile.REGTYPE, 0o755 if file.executable else 0o644, size=file.size)
            data = replaced.get(path)
            yield from _content(root / path, file) if data is None else (data, b"\0" * (-len(data) % BLOCK))
    for path, target in tree.links.items():
        yield from _member(f"{under}/files/{path}", tarfile.SYMTYPE, 0o777, linkname=target)
    yield from _member(f"{under}/manifest", tarfile.REGTYPE, 0o644, size=len(tree.manifest))
    yield tree.manifest + b"\0" * (-len(tree.manifest) % BLOCK)
    yield b"\0" * (2 * BLOCK)


def _member(name: str, kind: bytes, mode: int, **more: Any) -> Iterator[bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.mode = kind, mode
    for key, value in more.items():
        setattr(member, key, value)
    yield member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _content(path: Path, file: File) -> Iterator[bytes]:
    """Yield the bytes of a file; refuse it if it no longer matches the manifest."""
    digest, left = hashlib.sha256(), file.size
    with path.open("rb") as opened:
        while chunk := opened.read(min(CHUNK_BYTES, left)):
            digest.update(chunk)
            left -= len(chunk)
            yield chunk
    if left or digest.hexdigest() != file.sha256:
        raise EngineError(f"{path} was changed while it was shipped; it is tried again")
    yield b"\0" * (-file.size % BLOCK)
