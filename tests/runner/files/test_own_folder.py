"""Tests that nothing is read or removed through a link that a job put into its folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError
from rung.runner.files.own_folder import files_below, is_reached_by_link, opened_file, plain_path, remove_below


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with a link out of it; what lies there is precious."""
    (tmp_path / "precious" / "inner").mkdir(parents=True)
    (tmp_path / "precious" / "file").write_text("precious")
    (tmp_path / "root" / "own" / "deep").mkdir(parents=True)
    (tmp_path / "root" / "own" / "deep" / "file").write_text("mine")
    (tmp_path / "root" / "out").symlink_to(tmp_path / "precious")
    (tmp_path / "root" / "own" / "link").symlink_to(tmp_path / "precious" / "file")
    (tmp_path / "root" / "own" / "inner").symlink_to(tmp_path / "precious" / "inner")
    return tmp_path / "root"


def precious(root: Path) -> list[str]:
    return sorted(path.name for path in (root.parent / "precious").iterdir())


@pytest.mark.parametrize("path", ["", ".", "/", "/etc", "..", "a/../b", "../precious", "a\0b"])
def test_a_path_that_leads_elsewhere_is_refused(path: str, root: Path) -> None:
    with pytest.raises(EngineError, match="no path below"):
        plain_path(path)
    with pytest.raises(EngineError):
        remove_below(root, path)
    assert precious(root) == ["file", "inner"]


def test_nothing_is_removed_behind_a_link_and_the_link_itself_is(root: Path) -> None:
    for path in ("out/file", "out/inner", "own/inner/x"):
        with pytest.raises(EngineError, match="cannot be removed"):
            remove_below(root, path)
    remove_below(root, "out")
    remove_below(root, "own")
    assert precious(root) == ["file", "inner"] and list(root.iterdir()) == []
    remove_below(root, "own")


def test_nothing_is_read_behind_a_link(root: Path) -> None:
    assert [path for path, _, _ in files_below(root, "own")] == ["deep/file"]
    for path in ("out/file", "own/link", "own/inner/x"):
        with pytest.raises(EngineError, match="cannot be read"), opened_file(root, path):
            pass
    with pytest.raises(EngineError, match="cannot be listed"):
        files_below(root, "out")
    assert files_below(root, "nothing") == []
    assert is_reached_by_link(root, "out/file") and not is_reached_by_link(root, "own/deep/file")


def test_a_pipe_holds_nobody(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(EngineError, match="no plain file"), opened_file(root, "pipe"):
        pass
    with opened_file(root, "own/deep/file") as file:
        assert os.read(file, 10) == b"mine"
