"""Tests that versions of a file are kept from outside while the command runs, and at its end, but never half of one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rung_inside import version_watch

from tests.jobs.inside.test_wrapper import finished, request, wrap

Wait = Callable[..., Any]
# Overwrites its file in place; each save waits until the version of the one before is there, as long as it takes.
SAVES = """
import glob, os, sys, time
for number in range(3):
    with open("ckpt.pkl", "w") as file:
        file.write("save %d" % number)
    while number < 2 and len(glob.glob("ckpt.rung-t*.pkl")) <= number:
        time.sleep(0.05)
"""


def texts(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in folder.glob("ckpt.rung-t*.pkl"))


def test_the_wrapper_keeps_what_the_command_saves_and_its_last_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Wait
) -> None:
    monkeypatch.setenv("RUNG_CHECKPOINT_DIR", str(tmp_path / "a"))
    monkeypatch.setenv("RUNG_CHECKPOINT_PATTERN", "ckpt.pkl")
    request(tmp_path / "a", sys.executable, "-c", SAVES)
    assert finished(wrap(tmp_path / "a")) == 0
    wait_until((tmp_path / "a" / "done.json").exists)
    assert texts(tmp_path / "a") == ["save 0", "save 1", "save 2"]
    monkeypatch.setenv("RUNG_CHECKPOINT_PATTERN", "*.pkl")
    request(tmp_path / "b", "sh", "-c", "echo x > ckpt.pkl")
    assert finished(wrap(tmp_path / "b")) == 0
    wait_until((tmp_path / "b" / "done.json").exists)
    assert not list((tmp_path / "b").glob("*.rung-*"))


def test_an_archive_is_whole_when_it_has_its_end(tmp_path: Path) -> None:
    file = tmp_path / "ckpt.pt"
    torch.save({"weights": torch.zeros(1000)}, file)
    whole = file.read_bytes()
    assert version_watch.ends_like_an_archive(str(file))
    for half in (whole[: len(whole) // 2], whole[:-1], b"", b"text"):
        file.write_bytes(half)
        assert not version_watch.ends_like_an_archive(str(file))


def test_a_pipe_is_no_checkpoint_and_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ckpt.pt")
    assert version_watch.facts(str(tmp_path / "ckpt.pt")) is None
    variables = {"RUNG_CHECKPOINT_DIR": str(tmp_path), "RUNG_CHECKPOINT_PATTERN": "ckpt.pt"}
    command = [sys.executable, "-I", str(version_watch.__file__), "--once"]
    assert subprocess.run(command, env={**os.environ, **variables}, timeout=60, check=False).returncode == 0


def test_a_disk_that_is_full_is_told_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Full:
        def keep(self, path: str) -> None:
            raise OSError(28, "No space left on device")

    (tmp_path / "ckpt.pt").write_text("x")
    for _ in range(2):
        assert not version_watch.keep(Full(), str(tmp_path / "ckpt.pt"))
    told = capfd.readouterr().out.splitlines()
    assert told == [f"rung: no version of {tmp_path}/ckpt.pt could be kept: No space left on device"]
