"""Tests trees: the same content is the same tree, and an archive unpacks to exactly that content."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError
from rung.runner.files.tree import File, Tree, archive, read_manifest, scan, size_text

HOSTILE = [
    "a b",
    "-rf",
    "$(touch x)",
    "; rm -rf ~",
    "'\"`",
    "new\nline",
    "\x1b[31mred",
    "ünï",
    "bytes\udcff",
    "x" * 200,
]


def everything(path: str, folder: bool) -> bool:
    return False


def write(root: Path) -> None:
    (root / "sub" / "empty").mkdir(parents=True)
    for name in HOSTILE:
        (root / name).write_text(name, errors="surrogateescape")
        (root / "sub" / name).write_text("the same")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("sub/a b")
    (root / "long" / ("y" * 150)).mkdir(parents=True)
    (root / "long" / ("y" * 150) / ("z" * 150)).write_text("far down")


def unpack(to: Path, chunks: list[bytes]) -> None:
    subprocess.run(["tar", "-xf", "-", "-C", to], input=b"".join(chunks), check=True)


def test_an_archive_unpacks_to_the_tree_whatever_the_names(tmp_path: Path) -> None:
    root, host = tmp_path / "root", tmp_path / "host"
    root.mkdir()
    host.mkdir()
    write(root)
    tree = scan(root, everything)
    unpack(host, list(archive(tree, root, "t", {})))
    assert scan(host / "t" / "files", everything) == tree
    assert read_manifest((host / "t" / "manifest").read_bytes()) == tree
    assert os.access(host / "t" / "files" / "run.sh", os.X_OK)
    assert (host / "t" / "files" / "sub" / "empty").is_dir()


def test_only_what_the_host_lacks_is_in_the_archive(tmp_path: Path) -> None:
    root, host = tmp_path / "root", tmp_path / "host"
    root.mkdir()
    host.mkdir()
    write(root)
    (root / "weights").write_bytes(os.urandom(1 << 20))
    first = scan(root, everything)
    unpack(host, list(archive(first, root, "one", {})))
    (root / "run.sh").write_text("#!/bin/sh\necho changed\n")
    (root / "moved").write_bytes((root / "weights").read_bytes())
    second = scan(root, everything)
    known = {file: f"one/files/{path}" for path, file in first.files.items()}
    chunks = list(archive(second, root, "two", known))
    assert sum(map(len, chunks)) < 1 << 17
    unpack(host, chunks)
    assert scan(host / "two" / "files", everything) == second
    assert (host / "two/files/moved").stat().st_ino == (host / "one/files/weights").stat().st_ino


def test_the_id_of_a_tree_depends_on_names_and_modes_and_not_on_times(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    before = scan(tmp_path, everything).id
    os.utime(tmp_path / "a", (1, 1))
    assert scan(tmp_path, everything).id == before
    (tmp_path / "a").chmod(0o755)
    runs = scan(tmp_path, everything).id
    (tmp_path / "a").rename(tmp_path / "b")
    renamed = scan(tmp_path, everything).id
    assert len({before, runs, renamed}) == 3


def test_a_file_that_changes_while_it_is_shipped_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before")
    tree = scan(tmp_path, everything)
    (tmp_path / "a").write_text("after.")
    with pytest.raises(EngineError, match="was changed while it was shipped"):
        list(archive(tree, tmp_path, "t", {}))
    (tmp_path / "a").write_text("short")
    with pytest.raises(EngineError, match="was changed while it was shipped"):
        list(archive(tree, tmp_path, "t", {}))


@pytest.mark.parametrize("data", [b"", b"[]", b'{"files": 1}', b'{"files": {"a": [1]}}', b"\xff", b"null"])
def test_a_damaged_manifest_counts_as_empty(data: bytes) -> None:
    assert read_manifest(data) == Tree()


def test_sizes_are_shown_in_common_units() -> None:
    assert [size_text(size) for size in (5, 2048, 3 << 20, 5 << 29)] == ["5 bytes", "2.0 KiB", "3.0 MiB", "2.5 GiB"]
    assert File("a", False, 1) != File("a", True, 1)
