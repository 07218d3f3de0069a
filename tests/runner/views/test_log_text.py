"""Tests how a log is shown to a person: its end, its progress bars, and what is new in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rung.runner.files.log_file import LogFile
from rung.runner.files.log_writer import LogWriter
from rung.runner.views import log_text
from rung.runner.views.log_text import NewLines, log_lines, tail_start

BAR = b"epoch 1\n\r  0%|   | 0/3\r 33%|#  | 1/3\r100%|###| 3/3\nloss 0.5\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def append(log: Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (BAR, ["epoch 1", "100%|###| 3/3", "loss 0.5"]),
        (b"one\r\ntwo\r\nthree", ["one", "two", "three"]),
        # A bar that wipes itself when it is done.
        (b"50%\r100%\r      \r\nnext\n", ["100%", "next"]),
        (b"step 1 loss 3\rstep 2 loss 2\r", ["step 2 loss 2"]),
        (b"\x1b[31mred\x1b[0m\n\n\n", ["red", "", ""]),
        (b"", []),
    ],
)
def test_of_a_progress_bar_only_the_last_refresh_is_shown(log: Path, raw: bytes, shown: list[str]) -> None:
    log.write_bytes(raw)
    assert list(log_lines(log)) == shown


@pytest.mark.parametrize(("count", "shown"), [(1, ["loss 0.5"]), (2, ["100%|###| 3/3", "loss 0.5"])])
def test_the_tail_counts_lines_and_not_refreshes(log: Path, count: int, shown: list[str]) -> None:
    log.write_bytes(BAR)
    assert list(log_lines(log, count)) == shown
    assert list(log_lines(log, 9)) == list(log_lines(log))


def test_the_log_of_an_attempt_that_wrote_nothing_is_empty(log: Path) -> None:
    assert list(log_lines(log)) == list(log_lines(log, 5)) == []


@pytest.mark.parametrize("count", [1, 7, 90, 400, 2000])
def test_of_a_long_log_only_the_end_is_read(log: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"step {number} " + "x" * (number % 7) for number in range(1500)]
    log.write_text("".join(f"0%\r50%\r{text}\n" for text in texts))
    monkeypatch.setattr(log_text, "WINDOWS", (1000, 8000))
    read: list[int] = []
    monkeypatch.setattr(log_text, "LogFile", lambda path, start: read.append(start) or LogFile(path, start))
    assert list(log_lines(log, count)) == texts[-count:]
    # A window of 1000 bytes has some 40 lines, one of 8000 some 320.
    assert (0 in read) is (count > 320)
    assert bool(tail_start(log, count)) is (count <= 320)


@pytest.mark.parametrize("count", [9, 10, 11, 12])
def test_the_tail_never_begins_within_a_line(log: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"line {number:04d}" for number in range(50)]
    log.write_text("".join(f"{text}\n" for text in texts))
    # Ten lines of ten bytes, and half of one.
    monkeypatch.setattr(log_text, "WINDOWS", (105,))
    assert list(log_lines(log, count)) == texts[-count:]


def test_the_end_of_a_log_in_several_files_is_read_across_them(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = LogWriter(log, segment=200, most=4)
    writer.open_at(0)
    texts = [f"line {number:04d}" for number in range(300)]
    for text in texts:
        writer.append([f"{text}\n".encode()])
    writer.close()
    assert len([*log.parent.iterdir()]) == 4
    monkeypatch.setattr(log_text, "WINDOWS", (150, 300))
    assert list(log_lines(log, 10)) == texts[-10:]
    assert list(log_lines(log, 25)) == texts[-25:]
    assert any("bytes are left out here" in line for line in log_lines(log, 100))


def test_new_lines_come_once_and_the_last_one_when_it_is_complete(log: Path) -> None:
    reader = NewLines(log)
    assert list(reader.read(0.0, ended=False)) == []
    append(log, b"one\ntwo\nthr")
    assert list(reader.read(0.1, ended=False)) == ["one", "two"]
    assert list(reader.read(0.2, ended=False)) == []
    append(log, b"ee\nfour")
    assert list(reader.read(0.3, ended=False)) == ["three"]
    assert list(reader.read(0.4, ended=True)) == ["four"]
    assert list(reader.read(0.5, ended=True)) == []


def test_a_bar_that_goes_on_is_shown_now_and_then_and_at_its_end(log: Path) -> None:
    reader = NewLines(log)
    append(log, b"go\n\r10%\r20%\r")
    assert list(reader.read(0.0, ended=False)) == ["go", "20%"]
    append(log, b"30%\r")
    assert list(reader.read(1.0, ended=False)) == []
    append(log, b"40%\r")
    assert list(reader.read(NewLines.REFRESH_SECONDS, ended=False)) == ["40%"]
    assert list(reader.read(2 * NewLines.REFRESH_SECONDS, ended=False)) == []
    append(log, b"100%\ndone\n")
    assert list(reader.read(2 * NewLines.REFRESH_SECONDS + 1, ended=False)) == ["100%", "done"]
