"""Tests that config files are edited in the attempt's copy, and that the originals do not change."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import ConfigFileError, EngineError
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.files import work_copy
from rung.runner.files.ship import scan_workdir
from rung.runner.files.tree import archive
from rung.runner.files.work_copy import edited_texts, make_copy, with_edits
from rung.runner.launch.submit import refuse_impossible
from rung.runner.seams.engine import FileEdit

EDIT = FileEdit("conf/c.yaml", {"lr": 0.5})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a workdir with code, a config, data that git ignores, links, and Rung's own home in it."""
    folder = tmp_path / "src"
    for name in ("conf", "data", ".git", "home/secrets"):
        (folder / name).mkdir(parents=True)
    (folder / "train.sh").write_text("#!/bin/sh\n")
    (folder / "train.sh").chmod(0o755)
    (folder / "conf" / "c.yaml").write_bytes(b"lr: 0.1  # ours\r\n")
    (folder / "data" / "big.bin").write_text("data")
    (folder / ".gitignore").write_text("data/\n")
    (folder / "latest").symlink_to("conf/c.yaml")
    (folder / "elsewhere").symlink_to(tmp_path)
    return folder


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def copy(source: Path, *edits: FileEdit) -> Path:
    work = source / "home" / "jobs" / "a-1" / "attempts" / "1" / "work"
    work.parent.mkdir(parents=True, exist_ok=True)
    make_copy(source, work, edits, source / "home")
    return work


def test_the_copy_has_the_edit_and_all_else_is_unchanged(source: Path) -> None:
    before = snapshot(source)
    work = copy(source, EDIT)
    assert (work / "conf" / "c.yaml").read_bytes() == b"lr: 0.5  # ours\r\n"
    assert (work / "latest").read_bytes() == b"lr: 0.5  # ours\r\n"
    assert (work / "train.sh").stat().st_mode & 0o111 and not (work / "train.sh").is_symlink()
    assert sorted(path.name for path in work.iterdir()) == [
        ".gitignore",
        "conf",
        "data",
        "elsewhere",
        "latest",
        "train.sh",
    ]
    assert (work / "data").readlink() == source / "data"
    assert (work / "elsewhere").resolve() == source.parent
    assert {path: data for path, data in snapshot(source).items() if path in before} == before
    (work / "train.sh").write_text("changed")
    copy(source, EDIT)
    assert (work / "train.sh").read_text() == "changed"


def test_a_config_in_a_folder_that_git_ignores_is_copied_and_not_edited_through_a_link(source: Path) -> None:
    (source / ".gitignore").write_text("conf/\ndata/\n")
    (source / "conf" / "more").write_text("x")
    work = copy(source, EDIT)
    assert (work / "conf" / "c.yaml").read_bytes() == b"lr: 0.5  # ours\r\n"
    assert (work / "conf" / "more").is_symlink()
    assert (source / "conf" / "c.yaml").read_bytes() == b"lr: 0.1  # ours\r\n"


def test_a_config_behind_a_link_to_the_original_folder_is_refused(source: Path) -> None:
    (source / "same").symlink_to(source / "conf")
    with pytest.raises(EngineError, match="lies behind a link"):
        copy(source, FileEdit("same/c.yaml", {"lr": 0.5}))
    assert (source / "conf" / "c.yaml").read_bytes() == b"lr: 0.1  # ours\r\n"


def test_a_workdir_that_is_too_large_to_copy_is_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_copy, "MOST_FILES", 2)
    with pytest.raises(EngineError, match=r"to be copied for knobs\.files"):
        copy(source, EDIT)


def test_a_config_without_the_key_at_the_start_is_an_error(source: Path) -> None:
    (source / "conf" / "c.yaml").write_text("other: 1\n")
    with pytest.raises(EngineError, match=r"conf/c\.yaml: lr: there is no such key"):
        copy(source, EDIT)


def test_the_shipped_tree_has_the_edit(source: Path) -> None:
    (source / "elsewhere").unlink()
    (source / ".gitignore").write_text("conf/\ndata/\nlatest\n")
    tree, content = with_edits(scan_workdir(source, source / "home"), edited_texts(source, [EDIT]))
    data = b"".join(archive(tree, source, "t", {}, content))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = tar.getnames()
        file = tar.extractfile("t/files/conf/c.yaml")
        assert file is not None and file.read() == b"lr: 0.5  # ours\r\n"
    assert names.index("t/files/conf") < names.index("t/files/conf/c.yaml")
    assert "t/files/data" not in names
    same, _ = with_edits(
        scan_workdir(source, source / "home"), edited_texts(source, [FileEdit("conf/c.yaml", {"lr": 0.1})])
    )
    assert same.id != tree.id


# At submit


def submit(source: Path, files: dict[str, Any]) -> None:
    spec = JobSpec.model_validate({"name": "a", "run": "x", "knobs": {"files": files}})
    refuse_impossible(spec, source, lambda: [])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"c.yaml": {"lr": "lr"}}, "c.yaml: cannot be read in"),
        ({"conf/c.yaml": {"lr": "LR"}}, "conf/c.yaml: LR: there is no such key"),
        ({"conf/c.yaml": {"lr": ["lr", "clip"]}}, "clip: there is no such key"),
        ({"elsewhere/x.yaml": {"lr": "lr"}}, "leads out of the workdir"),
    ],
)
def test_a_missing_file_or_key_is_refused_at_submit(source: Path, files: Any, message: str) -> None:
    submit(source, {"conf/c.yaml": {"lr": "lr"}})
    with pytest.raises(ConfigFileError, match=message):
        submit(source, files)
