"""Tests which files are not shipped: the same as for git and Docker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError
from rung.runner.files.ship import scan_workdir
from rung.runner.files.tree import MOST_FILES, scan


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def shipped(root: Path) -> set[str]:
    return set(scan_workdir(root, root.parent / "home").files)


def test_what_git_ignores_is_not_shipped(tmp_path: Path) -> None:
    root = tmp_path / "work"
    make(
        root,
        "a.py",
        "b.pt",
        "keep.pt",
        "build/x",
        "sub/build/y",
        "sub/c.log",
        "sub/deep/d.log",
        "sub/deep/e.py",
        "x/b.pt",
    )
    make(root, "only/here", "sub/only/here")
    (root / ".gitignore").write_text("*.pt\n!keep.pt\nbuild/\n# words\n\n/only\n")
    (root / "sub" / ".gitignore").write_text("*.log\n!d.log\n")
    subprocess.run(["git", "init", "--quiet", root], check=True)
    subprocess.run(["git", "-C", root, "add", "."], check=True)
    listed = subprocess.run(["git", "-C", root, "ls-files"], check=True, capture_output=True, text=True).stdout
    assert shipped(root) == set(listed.split())
    assert "sub/deep/d.log" in shipped(root)
    assert "sub/only/here" in shipped(root)


def test_what_docker_ignores_is_not_shipped(tmp_path: Path) -> None:
    make(tmp_path / "w", "a.py", "b.pt", "x/b.pt", "data/big", "data/keep/small", "cache/y", "x/cache/z", "x/deep.tmp")
    (tmp_path / "w" / ".dockerignore").write_text("# words\n*.pt\ndata\n!data/keep\n./cache/\n**/*.tmp\n")
    assert shipped(tmp_path / "w") == {".dockerignore", "a.py", "x/b.pt", "data/keep/small", "x/cache/z"}


def test_gits_folder_and_rungs_home_are_not_shipped(tmp_path: Path) -> None:
    make(tmp_path, "a.py", ".git/config", "sub/.git/config", "state/rung/secrets/HF_TOKEN", "state/other")
    assert set(scan_workdir(tmp_path, tmp_path / "state" / "rung").files) == {"a.py", "state/other"}
    with pytest.raises(EngineError, match="Rung's own home"):
        scan_workdir(tmp_path, tmp_path)


def test_links_inside_are_kept_and_links_to_the_outside_are_refused(tmp_path: Path) -> None:
    make(tmp_path, "a/b.py", "c.py")
    (tmp_path / "a" / "link").symlink_to("../c.py")
    (tmp_path / "dangling").symlink_to("nowhere")
    tree = scan(tmp_path, lambda path, folder: False)
    assert tree.links == {"a/link": "../c.py", "dangling": "nowhere"}
    for target in ("/etc/passwd", "../outside", "a/../../x", ".."):
        (tmp_path / "out").symlink_to(target)
        with pytest.raises(EngineError, match="leads out of the workdir"):
            scan(tmp_path, lambda path, folder: False)
        (tmp_path / "out").unlink()


def test_a_too_large_workdir_is_refused_with_its_size_and_largest_folder(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "data/x")
    with (tmp_path / "data" / "huge").open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(EngineError, match=r"has 3\.0 GiB in 3 files, at most 1\.0 GiB .* most of it is data:"):
        scan(tmp_path, lambda path, folder: False)


def test_too_many_files_are_refused_before_any_is_read(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(MOST_FILES + 1):
        (tmp_path / "many" / str(number)).touch()
    with pytest.raises(EngineError, match=rf"{MOST_FILES + 1} files, .* most of it is many:"):
        scan(tmp_path, lambda path, folder: False)
