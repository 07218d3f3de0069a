"""Tests windows of logs: the right lines with their numbers, in bounded memory, of logs that grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from rung.runner.files.log_file import CHUNK
from rung.runner.web.log_window import MOST_CHARACTERS, WINDOW_BYTES, WINDOW_LINES, LogIndexes


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def numbers(path: Path, line: int | None, indexes: LogIndexes | None = None) -> tuple[list[int], list[str]]:
    found = (indexes or LogIndexes()).window(path, line, None)
    return [each.number for each in found.lines], [each.text for each in found.lines]


def test_a_log_that_is_not_there_is_empty(log: Path) -> None:
    assert numbers(log, None) == ([], [])
    assert numbers(log, 5) == ([], [])


@pytest.mark.parametrize("line", [1, 2, 149, 150, 5_000, 99_999, 200_000, 300_000, 10**9])
def test_every_line_has_its_own_number_wherever_the_window_is(log: Path, line: int) -> None:
    log.write_text("".join(f"this is line {number}\n" for number in range(1, 300_001)))
    assert log.stat().st_size > 4 * CHUNK
    found, texts = numbers(log, line)
    assert texts == [f"this is line {number}" for number in found]
    assert len(found) == WINDOW_LINES and min(line, 300_000) in found


def test_a_window_may_begin_with_a_line_in_which_two_pieces_meet(log: Path) -> None:
    log.write_text("".join(f"this is line {number}\n" for number in range(1, 300_001)))
    meeting = log.read_bytes()[: 2 * CHUNK].count(b"\n") + 1
    found, texts = numbers(log, meeting + WINDOW_LINES // 2)
    assert (found[0], texts[0]) == (meeting, f"this is line {meeting}")


def test_the_end_of_a_log_that_grows_is_read_from_where_the_last_look_ended(log: Path) -> None:
    indexes = LogIndexes()
    with log.open("w") as file:
        for number in range(1, 1001):
            file.write(f"{number}")
            file.flush()
            if number % 100 == 0:
                assert numbers(log, None, indexes)[1][-1] == str(number), "also a line without an end"
            file.write("\n")
    found, texts = numbers(log, None, indexes)
    assert texts == [str(number) for number in found] and found[-1] == 1000


def test_a_line_that_is_drawn_again_for_ever_takes_bounded_memory(log: Path) -> None:
    log.write_bytes(b"first\n" + b"\r".join(b"%9d%%" % n for n in range(2_000_000)) + b"\nlast\n")
    assert log.stat().st_size > 2 * WINDOW_BYTES
    found = LogIndexes().window(log, 1, None)
    assert found.total == 3 and found.lines[0].text == "first"


def test_a_very_long_line_is_cut_and_says_so(log: Path) -> None:
    log.write_text("x" * 50_000 + "\nnext\n")
    first, second = LogIndexes().window(log, None, 2).lines
    assert (len(first.text), first.cut, second.text, second.fault) == (MOST_CHARACTERS, 48_000, "next", True)


def test_control_codes_are_removed(log: Path) -> None:
    log.write_bytes(b"\x1b[31mred\x1b[0m \xe2\x80\xaetxt\n")
    assert numbers(log, None)[1] == ["red txt"]
