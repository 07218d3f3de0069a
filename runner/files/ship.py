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
# A tree may have lain there for long. Prints what it finds.
VERIFY_SCRIPT = """
cd "$1/files" 2>/dev/null || { echo missing; exit 0; }
# A name may have line breaks, so one character is printed for each.
count() { find . ! -type d "$@" -exec sh -c 'for _; do echo; done' sh {} + | wc -l; }
[ "$(count)" -eq $(($2 + $3)) ] && [ "$(count -type l)" -eq "$3" ] || { echo changed; exit 0; }
[ "$2" = 0 ] || sha256sum -c - >/dev/null 2>&1 || { echo changed; exit 0; }
echo intact
"""
REMOVE_SCRIPT = 'rm -rf -- "$1"'
# The attempt may write to its copy and never changes the tree. No hard links, also not among its own files. Which tree
# it is, is written beside the copy, where no job can write: a tree goes with the last job that has a copy of it.
COPY_SCRIPT = """
set -eu
umask 077
tree=$1 work=$2
shift 2
mkdir -p "$@"
id=${tree%/files}
printf %s "${id##*/}" >"${work%/*}/tree"
[ -d "$work" ] && exit 0
rm -rf "$work.part"
cp -RPp "$tree" "$work.part"
mv "$work.part" "$work"
"""


# For the folders that several hosts may share: who ships there clears away what others have left half done.
_SHARED: dict[str, threading.Lock] = {}


class Shipper:
    """Ships folders to one host, for one store."""

    def __init__(self, remote: Remote, paths: HostPaths) -> None:
        self._remote, self._paths = remote, paths
        self._one_at_a_time = _SHARED.setdefault(paths.root, threading.Lock()) if paths.folder else threading.Lock()
        # Whether files of other trees may be used again.
        self._trusted = True

    def ship(self, root: Path, tree: Tree, content: Mapping[str, bytes] | None = None) -> str:
        """Ship a tree if it is missing and return its folder on the host; `content` replaces files of `root`.

        A tree that is there is compared with its manifest each time: what it holds runs in every job.
        """
        folder = f"{self._paths.trees}/{tree.id}"
        with self._one_at_a_time:
            found = self._verify(tree, folder)
            if found == "missing":
                found = self._send(root, tree, content or {})
            if found != "intact":
                self._run(REMOVE_SCRIPT, folder, what="files that were changed there cannot be removed")
                # Other trees may be changed too, and files are linked from them.
                self._trusted = False
                raise EngineError(
                    f"{self._remote.name}: files that Rung had sent were changed there; it sends them anew"
                )
        return f"{folder}/files"

    def _verify(self, tree: Tree, folder: str) -> str:
        arguments = (folder, str(len(tree.files)), str(len(tree.links)))
        return self._run(VERIFY_SCRIPT, *arguments, what="what was shipped cannot be verified", stdin=checksums(tree))

    def _send(self, root: Path, tree: Tree, replaced: Mapping[str, bytes]) -> str:
        """Send a tree and return what is there now."""
        trees = self._paths.trees
        self._run(BEGIN_SCRIPT, trees, what="a folder for what is shipped cannot be made")
        part = f"{tree.id}.{secrets.token_hex(4)}"
        with self._remote.files() as files:
            known = self._known(files) if self._trusted else {}
            files.write(f"{trees}/{part}.tar", archive(tree, root, f"{part}.part", known, replaced), 0o600)
        self._run(UNPACK_SCRIPT, trees, part, tree.id, what="what was shipped cannot be unpacked")
        return self._verify(tree, f"{trees}/{tree.id}")

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
        self._run(COPY_SCRIPT, tree, work, *folders, what="the attempt's folders cannot be made")

    def _run(self, script: str, *arguments: str, what: str, stdin: bytes | None = None) -> str:
        ran = self._remote.run(["sh", "-c", script, "rung", *arguments], stdin, timeout=UNPACK_SECONDS)
        if ran.code != 0:
            message = (ran.err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {ran.code}"])[-1]
            raise EngineError(f"{self._remote.name}: {what}: {clean(message)[:500]}")
        return ran.out.decode("ascii", "replace").strip()


def checksums(tree: Tree) -> bytes:
    """Return the list of a tree's files that sha256sum verifies."""
    lines = []
    for path, file in tree.files.items():
        # sha256sum wants such a name in its own spelling.
        odd = "\\" if "\\" in path or "\n" in path else ""
        name = path.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"{odd}{file.sha256}  ./{name}\n")
    return "".join(lines).encode("utf-8", "surrogateescape")


def scan_workdir(folder: Path, home: Path) -> Tree:
    """Return the files of a workdir to ship, without Rung's own home, which has secrets and may be in it."""
    ignored, here, rung_home = Ignored(folder), folder.resolve(), home.resolve()
    if rung_home == here:
        raise EngineError(f"workdir {folder} is Rung's own home, with its secrets: choose another folder")
    inside = rung_home.relative_to(here).as_posix() if rung_home.is_relative_to(here) else None
    return scan(folder, lambda path, is_folder: path == inside or ignored.excludes(path, folder=is_folder))
