"""Tests the list of shipped trees: who has a copy, what a container mounts, and answers that make no sense."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rung.jobs.model.paths import HostPaths
from rung.runner.files.ship import COPY_SCRIPT
from rung.runner.files.shipped_trees import ShippedTrees, mounted_trees, parse_trees
from rung.runner.seams.remote import CommandResult
from rung.runner.seams.storage import DiskUse, ShippedTree

ONE, TWO, THREE = "1" * 64, "2" * 64, "3" * 64


class Here:
    """Runs the scripts on this machine."""

    name = "ampere"

    def run(self, argv: Sequence[str], stdin: bytes | None = None, *, timeout: float) -> CommandResult:
        done = subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=timeout)
        return CommandResult(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def paths(tmp_path: Path) -> HostPaths:
    """Return the folders of a host with three trees; files of the second are hard links of the first."""
    found = HostPaths(str(tmp_path), "store")
    for tree in (ONE, TWO, THREE):
        (Path(found.trees) / tree / "files").mkdir(parents=True)
    (Path(found.trees) / ONE / "files" / "large").write_bytes(os.urandom(100_000))
    os.link(Path(found.trees) / ONE / "files" / "large", Path(found.trees) / TWO / "files" / "large")
    return found


def trees(paths: HostPaths, *in_use: str) -> ShippedTrees:
    return ShippedTrees(Here(), paths, lambda: set(in_use))  # type: ignore[arg-type]


def test_an_attempt_says_which_tree_it_has_a_copy_of(paths: HostPaths) -> None:
    work, record = paths.work("a-1", 1), paths.record("a-1", 1)
    argv = ["sh", "-c", COPY_SCRIPT, "rung", f"{paths.trees}/{ONE}/files", work, record]
    for _ in range(2):
        subprocess.run(argv, check=True)
    found = {tree.id: tree.jobs for tree in trees(paths).list()}
    assert found == {ONE: {"a-1"}, TWO: frozenset(), THREE: frozenset()}
    assert (Path(work) / "large").stat().st_nlink == 1


def test_trees_in_use_are_not_listed_and_the_others_have_an_age(paths: HostPaths) -> None:
    os.utime(Path(paths.trees) / TWO, (1000, 1000))
    found = {tree.id: tree.age for tree in trees(paths, ONE).list()}
    assert set(found) == {TWO, THREE} and found[TWO] > 1e9 and found[THREE] < 3600


def test_hard_links_between_trees_count_once(paths: HostPaths) -> None:
    done = subprocess.run(["du", "-skc", ONE, TWO], cwd=paths.trees, capture_output=True, text=True, check=True)
    assert trees(paths).disk_use([ONE, TWO]) == DiskUse(int(done.stdout.splitlines()[-1].split()[0]) << 10)
    assert trees(paths).disk_use([]) == DiskUse()


def test_removed_trees_are_gone_and_no_other_is(paths: HostPaths) -> None:
    trees(paths).remove([ONE, "4" * 64])
    assert sorted(path.name for path in Path(paths.trees).iterdir()) == [TWO, THREE]
    assert (Path(paths.trees) / TWO / "files" / "large").stat().st_size == 100_000


def test_a_host_without_trees_has_none(tmp_path: Path) -> None:
    assert trees(HostPaths(str(tmp_path), "nothing")).list() == []


def test_lines_that_the_script_never_prints_are_left_out() -> None:
    text = f"tree {ONE} 5\ntree ../.. 5\ntree {TWO} x\nused {ONE} a-1\nused {ONE} ../b\nused {TWO} c-1\nwhat\n"
    assert parse_trees(text) == [ShippedTree(ONE, 5.0, frozenset({"a-1"}))]


def test_what_a_container_mounts_is_in_use_whatever_else_the_engine_says() -> None:
    good = {"Mounts": [{"Source": f"/h/trees/{ONE}/files"}, {"Source": "/h/jobs/x"}]}
    odd = [{}, {"Mounts": None}, {"Mounts": [None, 3, {}, {"Source": 7}]}]
    assert mounted_trees([good, *odd], "/h/trees") == {ONE}
