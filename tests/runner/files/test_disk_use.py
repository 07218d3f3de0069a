"""Tests that disk use is counted as `du` counts it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rung.runner.files.disk_use import disk_use
from rung.runner.seams.storage import DiskUse, total_use


def du(*paths: Path) -> list[int]:
    """Return what the real `du` says of each path, in bytes."""
    done = subprocess.run(["du", "-sk", "--", *paths], capture_output=True, text=True, check=True)
    return [int(line.split("\t")[0]) << 10 for line in done.stdout.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with all that makes apparent and allocated sizes differ."""
    made = tmp_path / "made"
    (made / "a" / "deep" / "er").mkdir(parents=True)
    (made / "b").mkdir()
    (made / "a" / "one").write_bytes(b"x")
    (made / "a" / "deep" / "large").write_bytes(os.urandom(3_000_001))
    with (made / "a" / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    os.link(made / "a" / "deep" / "large", made / "a" / "same")
    os.link(made / "a" / "deep" / "large", made / "b" / "same")
    (made / "b" / "link").symlink_to(made / "a" / "deep" / "large")
    (made / "b" / "folder").symlink_to("/usr")
    (made / "b" / "gone").symlink_to("nowhere")
    os.mkfifo(made / "b" / "pipe")
    return made


def test_it_is_what_du_says(folder: Path) -> None:
    assert [each.size for each in disk_use([folder])] == du(folder)


def test_a_file_with_several_names_counts_once_over_all_paths(folder: Path) -> None:
    found = disk_use([folder / "a", folder / "b"])
    assert [each.size for each in found] == du(folder / "a", folder / "b")
    assert found[1].size < 3_000_000 < found[0].size < 1 << 30
    assert total_use(found).complete


def test_what_is_not_there_takes_nothing(tmp_path: Path) -> None:
    assert disk_use([tmp_path / "nothing"]) == [DiskUse()]


def test_what_cannot_be_looked_at_makes_it_incomplete(folder: Path) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(20):  # deeper than a path can name
        os.mkdir("d" * 250, dir_fd=here)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    found = disk_use([folder])[0]
    assert not found.complete and found.size > 0
