"""Lists, measures and removes the trees that were shipped to a host. Only Rung writes there, so no container is needed.

Each is a copy of a workdir that is sent again when it is missing, so one that no attempt needs can go at any time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import HostPaths
from rung.jobs.model.terminal_text import clean
from rung.runner.seams.remote import Remote
from rung.runner.seams.storage import DiskUse, ShippedTree

SECONDS = 600.0
# A line for each tree with its age in seconds, by the clock of the host, and one for each attempt that has a copy.
LIST_SCRIPT = """
cd "$1" 2>/dev/null || exit 0
now=$(date +%s)
for tree in trees/*; do
  [ -d "$tree" ] && [ ! -L "$tree" ] || continue
  printf 'tree %s %s\\n' "${tree#trees/}" "$((now - $(stat -c %Y "$tree")))"
done
for file in jobs/*/attempts/*/tree; do
  [ -f "$file" ] && [ ! -L "$file" ] || continue
  job=${file#jobs/}
  printf 'used %s %s\\n' "$(head -c 64 "$file")" "${job%%/*}"
done
"""
# One call for all of them: their files are hard links of each other, and each counts once.
USE_SCRIPT = 'cd "$1" || exit 1; shift; du -sk -- "$@"'
# Renamed first: a tree under its name is whole. What is left of it goes with the next tree that is sent.
REMOVE_SCRIPT = """
cd "$1" || exit 1
shift
for tree; do
  [ -d "$tree" ] || continue
  mv "$tree" "$tree.$$.part"
  rm -rf -- "$tree.$$.part"
done
"""
TREE = re.compile(r"tree ([0-9a-f]{64}) (-?[0-9]{1,12})")
USED = re.compile(r"used ([0-9a-f]{64}) ([a-z0-9-]{1,64})")
USE = re.compile(r"([0-9]{1,15})\t([0-9a-f]{64})")


def parse_trees(text: str) -> list[ShippedTree]:
    """Return the trees that the script printed; lines that it never prints are left out. Pure."""
    lines = text.split("\n")
    users: dict[str, set[str]] = {}
    for used in filter(None, map(USED.fullmatch, lines)):
        users.setdefault(used[1], set()).add(used[2])
    trees = filter(None, map(TREE.fullmatch, lines))
    return [ShippedTree(tree[1], float(tree[2]), frozenset(users.get(tree[1], ()))) for tree in trees]


def mounted_trees(containers: Iterable[Mapping[str, Any]], folder: str) -> set[str]:
    """Return the trees that containers mount, from an engine's list of them. Pure."""
    lists = [found for each in containers if isinstance(found := each.get("Mounts"), list)]
    sources = [str(mount.get("Source")) for found in lists for mount in found if isinstance(mount, dict)]
    below = f"{folder}/"
    return {source.removeprefix(below).partition("/")[0] for source in sources if source.startswith(below)}


class ShippedTrees:
    """The trees of one store on one host."""

    def __init__(self, remote: Remote, paths: HostPaths, in_use: Callable[[], Set[str]]) -> None:
        """`in_use` returns the trees that a container mounts, or the next one will."""
        self._remote, self._paths, self._in_use = remote, paths, in_use

    def list(self) -> list[ShippedTree]:
        found, used = parse_trees(self._run(LIST_SCRIPT, self._paths.root)), self._in_use()
        return [tree for tree in found if tree.id not in used]

    def disk_use(self, ids: Sequence[str]) -> DiskUse:
        """Return what these trees take together."""
        if not ids:
            return DiskUse()
        found = map(USE.fullmatch, self._run(USE_SCRIPT, self._paths.trees, *ids).splitlines())
        sizes = {use[2]: int(use[1]) << 10 for use in found if use}
        return DiskUse(sum(sizes.get(each, 0) for each in ids), all(each in sizes for each in ids))

    def remove(self, ids: Sequence[str]) -> None:
        self._run(REMOVE_SCRIPT, self._paths.trees, *ids)

    def _run(self, script: str, *arguments: str) -> str:
        ran = self._remote.run(["sh", "-c", script, "rung", *arguments], timeout=SECONDS)
        if ran.code != 0:
            message = (ran.err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {ran.code}"])[-1]
            raise EngineError(f"{self._remote.name}: the trees there: {clean(message)[:500]}")
        return ran.out.decode("utf-8", "replace")
