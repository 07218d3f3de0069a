"""Tests reading the log of an attempt on this machine."""

from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError
from rung.runner.files.log_file import CHUNK, LogFile, read_lines


def test_the_log_is_read_on_from_a_cursor(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reader = LogFile(log)
    assert reader.read(10) == b""
    log.write_bytes(b"0123456789")
    assert [reader.read(4) for _ in range(5)] == [b"0123", b"4567", b"89", b"", b""]
    with log.open("ab") as file:
        file.write(b"ab")
    assert reader.read(4) == b"ab"


def test_a_log_that_cannot_be_read_is_reported_as_an_engine_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=": cannot be read: Is a directory"):
        LogFile(tmp_path).read(10)


def test_the_lines_of_a_log_do_not_depend_on_how_it_is_cut_into_chunks(tmp_path: Path) -> None:
    log, texts = tmp_path / "log", [f"step {number} loss 2.0" for number in range(3 * CHUNK // 16)]
    log.write_text("\n".join(texts))
    assert [line.text for line in read_lines(log)] == texts
