"""Tests that a full disk ends in one clear line, and that nothing written before is lost.

Each test mounts its own small file system, which needs root.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Rung = Callable[..., Any]


@pytest.fixture
def small_disk(home: Path) -> Iterator[Path]:
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "rung-test", str(home)], check=True)
    yield home
    subprocess.run(["umount", "--lazy", str(home)], check=True)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text("name: a\nrun: echo hello\n", encoding="utf-8")
    return file


def fill(disk: Path) -> Path:
    """Write until the disk is full."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError as error:
                assert error.errno == 28  # ENOSPC
    assert os.statvfs(disk).f_bavail == 0
    return ballast


def one_clear_line(ran: Any, home: Path) -> None:
    assert ran.code == 2, ran
    assert "Traceback" not in ran.err
    assert ran.err.count("\n") == 1, ran.err
    assert ran.err.startswith("rung: ")
    assert str(home) in ran.err
    assert "space" in ran.err


def test_a_first_launch_on_a_full_disk_is_an_error_of_one_line(small_disk: Path, job: Path, rung: Rung) -> None:
    ballast = fill(small_disk)
    one_clear_line(rung("launch", job), small_disk)
    ballast.unlink()
    assert rung("launch", job).code == 0
    assert [row["id"] for row in json.loads(rung("queue", "--json").out)] == ["a-1"]


def test_another_launch_on_a_full_disk_keeps_the_earlier_jobs(small_disk: Path, job: Path, rung: Rung) -> None:
    assert rung("launch", "-f", job).code == 0
    before = json.loads(rung("history", "--json", "a-1").out)
    ballast = fill(small_disk)
    # The store has some free space in its own files, so the first few jobs may still fit.
    for _ in range(200):
        ran = rung("launch", job)
        if ran.code:
            break
    one_clear_line(ran, small_disk)
    ballast.unlink()
    rows = json.loads(rung("queue", "--json").out)
    assert [row["id"] for row in rows] == [f"a-{number}" for number in range(1, len(rows) + 1)]
    assert json.loads(rung("history", "--json", "a-1").out) == before
    assert rung("logs", "a-1").out == "hello\n"
    assert rung("launch", job).code == 0
