"""Ships a folder to a host: each content once, only what the host does not have, atomically."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from pathlib import Path

from rung.jobs.model.errors import EngineError, HostError
from rung.jobs.model.paths import HostPaths
from rung.jobs.model.terminal_text import clean
from rung.runner.files.ignore import Ignored
from rung.runner.files.tree import File, Tree, archive, read_manifest, scan
from rung.runner.seams.remote import Files, Remote

# Content is searched in so many of the newest trees; more are not worth the time.
TREES_SEARCHED = 4
# Enough for the largest number of files that is shipped, with long paths.
MANIFEST_BYTES = 1 << 24
UNPACK_SECONDS = 600.0

# Removes the remains of an earlier try; only we may read the folder.
BEGIN_SCRIPT = """
set -eu
umask 077
mkdir -p "$1"
rm -rf "$1"/*.part "$1"/*.tar
"""
# A tree appears under its name only when it is complete.
UNPACK_SCRIPT = """
set -eu
cd "$1"
trap 'rm -rf "$2.part" "$2.tar"' EXIT
tar -xf "$2.tar"
rm -f "$2.tar"
[ -d "$3" ] || mv "$2.part" "$3"
"""
# The attempt may write to its copy and never changes the tree. No hard links, also not among its own files.
COPY_SCRIPT = """
set -eu
umask 077
tree=$1 work=$2
shift 2
mkdir -p "$@"
[ -d "$work" ] && exit 0
rm -rf "$work.part"
cp -RPp "$tree" "$work.part"
mv "$work.part" "$work"
"""


class Shipper:
    """Ships folders to one host, for one store."""

    def __init__(self, remote: Remote, paths: HostPaths) -> None:
        self._remote, self._paths = remote, paths
        self._one_at_a_time = threading.Lock()
        self._there: set[str] = set()

    def ship(self, root: Path, tree: Tree, content: Mapping[str, bytes] | None = None) -> str:
        """Ship a tree if it is missing and return its folder on the host; `content` replaces files of `root`."""
        folder = f"{self._paths.trees}/{tree.id}"
        with self._one_at_a_time:
            if tree.id not in self._there:
                with self._remote.files() as files:
                    if files.stat(folder) is None:
                        self._send(files, root, tree, content or {})
                self._there.add(tree.id)
        return f"{folder}/files"

    def _send(self, files: Files, root: Path, tree: Tree, replaced: Mapping[str, bytes]) -> None:
        trees = self._paths.trees
        self._run(BEGIN_SCRIPT, trees, what="a folder for what is shipped cannot be made")
        part = f"{tree.id}.{secrets.token_hex(4)}"
        content = archive(tree, root, f"{part}.part", self._known(files), replaced)
        files.write(f"{trees}/{part}.tar", content, 0o600)
        self._run(UNPACK_SCRIPT, trees, part, tree.id, what="what was shipped cannot be unpacked")

    def _known(self, files: Files) -> dict[File, str]:
        """Return the contents that the host has, and where in its folder of trees."""
        trees = [entry for entry in files.entries(self._paths.trees) if entry.is_folder]
        known: dict[File, str] = {}
        for entry in sorted(trees, key=lambda each: -each.written_at)[:TREES_SEARCHED]:
            name = entry.path.rpartition("/")[2]
            try:
                tree = read_manifest(files.read(f"{entry.path}/manifest", 0, MANIFEST_BYTES))
            except (EngineError, HostError):
                continue
            # A manifest that does not fit its name proves nothing about the files beside it.
            if tree.id == name:
                known |= {file: f"{name}/files/{path}" for path, file in tree.files.items()}
        return known

    def copy(self, tree: str, work: str, *folders: str) -> None:
        """Make the folders of an attempt: its copy of the tree, and folders for what it writes."""
        try:
            self._run(COPY_SCRIPT, tree, work, *folders, what="the attempt's folders cannot be made")
        except (EngineError, HostError):
            # Somebody may have removed the trees, so the next call checks for them again.
            self._there.clear()
            raise

    def _run(self, script: str, *arguments: str, what: str) -> None:
        ran = self._remote.run(["sh", "-c", script, "rung", *arguments], timeout=UNPACK_SECONDS)
        if ran.code != 0:
            message = (ran.err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {ran.code}"])[-1]
            raise EngineError(f"{self._remote.name}: {what}: {clean(message)[:500]}")


def scan_workdir(folder: Path, home: Path) -> Tree:
    """Return the files of a workdir to ship, without Rung's own home, which has secrets and may be in it."""
    ignored, here, rung_home = Ignored(folder), folder.resolve(), home.resolve()
    if rung_home == here:
        raise EngineError(f"workdir {folder} is Rung's own home, with its secrets: choose another folder")
    inside = rung_home.relative_to(here).as_posix() if rung_home.is_relative_to(here) else None
    return scan(folder, lambda path, is_folder: path == inside or ignored.excludes(path, folder=is_folder))
