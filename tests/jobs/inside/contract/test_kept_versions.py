"""Tests the versions of a checkpoint file that every save overwrites: whole copies, few, and no bad ones."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from rung_inside.contract import kept_versions


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUNG_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("RUNG_CHECKPOINT_PATTERN", "ckpt.pth.tar")
    return tmp_path / "ckpt.pth.tar"


def save(file: Path, text: str, at: int) -> None:
    """Overwrite a file in place, as torch.save does, and set its time."""
    file.write_text(text)
    os.utime(file, (at, at))


def kept(file: Path) -> dict[str, str]:
    return {name: (file.parent / name).read_text() for name in kept_versions.versions(str(file))}


def test_a_version_outlives_the_next_save_into_the_same_inode(file: Path) -> None:
    for step, text in ((10, "ten"), (20, "twenty")):
        save(file, text, step)
        assert kept_versions.keep(str(file), step) == f"ckpt.rung-step-{step}.pth.tar"
    assert kept(file) == {"ckpt.rung-step-20.pth.tar": "twenty", "ckpt.rung-step-10.pth.tar": "ten"}
    assert (file.parent / "ckpt.rung-step-10.pth.tar").stat().st_mtime == 10, "the search reads the time of writing"
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []


def test_what_is_kept_from_outside_first_gets_its_step_from_inside_and_is_not_kept_twice(file: Path) -> None:
    save(file, "ten", 10)
    assert kept_versions.keep(str(file)) == "ckpt.rung-t10000.pth.tar"
    assert kept_versions.keep(str(file), 7) == "ckpt.rung-step-7.pth.tar"
    assert kept_versions.keep(str(file)) == "ckpt.rung-step-7.pth.tar"
    assert list(kept(file)) == ["ckpt.rung-step-7.pth.tar"]


def test_a_file_that_is_written_meanwhile_is_not_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwritten(*arguments: object) -> None:
        save(file, "half of", 11)

    save(file, "ten", 10)
    monkeypatch.setattr(shutil, "copyfileobj", overwritten)
    assert kept_versions.keep(str(file), 10) is None
    assert [path.name for path in file.parent.iterdir()] == ["ckpt.pth.tar"]


def test_nothing_is_kept_of_an_empty_file_a_folder_or_a_rejected_file(file: Path) -> None:
    save(file, "", 10)
    assert kept_versions.keep(str(file)) is None
    save(file, "poisoned", 20)
    kept_versions.reject(str(file))
    assert kept_versions.keep(str(file)) is None and kept_versions.keep(str(file), 20) is None
    save(file, "sound", 30)
    assert kept_versions.keep(str(file), 30) == "ckpt.rung-step-30.pth.tar"
    file.unlink()
    file.mkdir()
    assert kept_versions.keep(str(file)) is None


def test_many_bad_saves_do_not_push_out_all_good_ones(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNG_CHECKPOINT_KEEP", "5")
    for step in range(1, 201):
        save(file, str(step), step)
        kept_versions.keep(str(file), step)
        steps = [int(text) for text in kept(file).values()]
        assert len(steps) <= 5 and steps[:2] == [step, step - 1][: len(steps)]
        assert step - steps[-1] >= min(step - 1, kept_versions.REACH), "one is old enough for a fault that is seen late"
    assert steps[-1] > 100, "the oldest is not kept for ever"


def test_a_draft_of_a_killed_process_is_removed_and_one_that_is_written_is_not(file: Path) -> None:
    old, new = file.parent / ".ckpt.rung-t1.pth.tar.99.tmp", file.parent / ".ckpt.rung-t2.pth.tar.98.tmp"
    for draft in (old, new):
        draft.write_text("half")
    os.utime(old, (10, 10))
    save(file, "ten", 10)
    kept_versions.keep(str(file), 10)
    assert not old.exists() and new.exists()


def test_only_the_named_file_in_the_checkpoint_folder_is_watched(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = file.parent.parent / f"{file.parent.name}-link"
    link.symlink_to(file.parent)
    assert kept_versions.is_watched(str(file)) and kept_versions.is_watched(str(link / file.name))
    assert not kept_versions.is_watched(str(file.parent / "best.pth.tar"))
    assert not kept_versions.is_watched(str(file.parent / "deep" / file.name))
    monkeypatch.setenv("RUNG_CHECKPOINT_PATTERN", "step_*.pt")
    assert kept_versions.watched_file() is None and not kept_versions.is_watched(str(file.parent / "step_*.pt"))
