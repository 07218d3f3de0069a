"""Tests that a log comes to the same state and the same curves, line by line or in large chunks, and leaves no file."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError
from rung.runner.files.log_file import LogFile
from tests.runner.log_reading.watched import CORPUS, append, attempt_paths, new_watch, state_of

BAD = ("nan", "inf", "0.0", "1e9")


def training(seed: int) -> list[bytes]:
    """Return lines as a training prints them, most of them healthy, with some that are not."""
    dice, lines = random.Random(seed), []
    for step in range(700):
        loss = dice.choice(BAD) if dice.random() < 0.02 else f"{2 + dice.random():.4f}"
        norm = dice.choice(BAD) if dice.random() < 0.02 else f"{dice.random():.3f}"
        line = dice.choice(
            (
                f"step {step} loss {loss} lr 1e-4 grad_norm {norm}",
                f"step {step} loss {loss} lr 1e-4",
                f"{step}/700 [00:01<00:02, {dice.random():.2f}it/s, loss={loss}]",
                f"rung| step step={step} loss={loss} lr=0.0001 grad_norm={norm} scale=1024.0 skipped=0",
                dice.choice(("", "saved", "RuntimeError: no", "ppl 12.0", "[rank1]: loss 3.0", "\u00e9 loss 1.0")),
            )
            if seed % 2
            else (f"step {step} loss {loss} lr 1e-4 grad_norm {norm}",)
        )
        lines.append(f"{line}\n".encode())
    return lines


def read(folder: Path, pieces: list[bytes]) -> tuple[str, bytes, str]:
    """Return all that is known of a log that grew by these pieces: its state, its curves, its fault."""
    paths = attempt_paths(folder)
    # It is there before the log, so that all of it has just come.
    watch = new_watch(paths)
    for piece in pieces:
        append(paths, piece)
        while watch.read():
            pass
    watch.read_to_end()
    series = paths.series.read_bytes() if paths.series.exists() else b""
    return state_of(watch), series, repr((watch.fault, watch.detector.first_fault(ended=True)))


@pytest.mark.parametrize("seed", range(8))
def test_a_log_read_line_by_line_comes_to_the_same_as_one_read_in_chunks(tmp_path: Path, seed: int) -> None:
    lines = training(seed)
    cuts = sorted(random.Random(seed).sample(range(len(lines)), 9))
    chunks = [b"".join(lines[a:b]) for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    by_line = read(tmp_path / "lines", lines)
    assert by_line == read(tmp_path / "chunks", chunks)
    assert by_line == read(tmp_path / "once", [b"".join(lines)])


@pytest.mark.parametrize("log", CORPUS[::8], ids=lambda path: path.stem)
def test_a_log_of_the_corpus_does_too(tmp_path: Path, log: Path) -> None:
    data = log.read_bytes()[:40_000]
    by_line = read(tmp_path / "lines", data.splitlines(keepends=True))
    assert by_line == read(tmp_path / "once", [data])


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a path for each would be no shorter


def test_a_slice_leaves_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"step 1\nstep 2\n")
    log, before = LogFile(tmp_path / "log"), open_files()
    assert [log.read(7), log.read(7), log.read(7)] == [b"step 1\n", b"step 2\n", b""]
    assert log.before(7) == b"step 2\n"
    assert open_files() == before


def test_a_log_that_cannot_be_read_is_an_error_that_leaves_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    before = open_files()
    with pytest.raises(EngineError, match="cannot be read"):
        LogFile(tmp_path / "log").read(100)
    assert open_files() == before


def test_a_slice_needs_no_file_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_bytes(b"step 1\n")
    monkeypatch.setattr(Path, "open", None)
    log = LogFile(tmp_path / "log")
    assert log.read(100) == b"step 1\n" and log.before(100) == b"step 1\n"
