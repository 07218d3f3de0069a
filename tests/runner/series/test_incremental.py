"""Tests that a series that grows is read bit by bit, and that one that was cut, replaced or damaged is read anew.

What is counted are the bytes that were read, so that nothing here depends on time.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rung.jobs.model.paths import AttemptPaths
from rung.recovery.logs.reading import Reading
from rung.recovery.series.point import Row
from rung.recovery.series.thinning import ROWS_PER_LEVEL
from rung.runner.series.file_format import HEAD, MAX_LINE, parse
from rung.runner.series.incremental import IncrementalReader
from rung.runner.series.write import SeriesWriter

NOW = 1000.0


@pytest.fixture
def paths(tmp_path: Path) -> AttemptPaths:
    return place(tmp_path, 1)


def place(folder: Path, number: int) -> AttemptPaths:
    found = AttemptPaths(folder / "jobs" / "j-1" / "attempts" / str(number))
    found.folder.mkdir(parents=True)
    found.log.touch()
    return found


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many bytes each read gave."""
    found: list[int] = []
    pread = os.pread

    def counted(file: int, size: int, offset: int) -> bytes:
        data = pread(file, size, offset)
        found.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    return found


def grow(writer: SeriesWriter, steps: range) -> None:
    for step in steps:
        writer.add(step, Reading(loss=float("nan") if step % 97 == 0 else 2.0 + step % 7, lr=1e-3))
    writer.write(live=True)


def in_file(paths: AttemptPaths) -> str:
    return repr(tuple(parse(paths.series.read_bytes()).rows))


def read(reader: IncrementalReader, paths: AttemptPaths, *, keep: bool = True) -> tuple[Row, ...]:
    rows = reader.rows(paths, keep=keep)
    assert rows is not None
    return rows


def test_each_look_reads_what_is_new_and_all_rows_are_there(paths: AttemptPaths, counts: list[int]) -> None:
    reader, writer, before = IncrementalReader(), SeriesWriter(paths, lambda: NOW), 0
    # Over several levels: a row holds one reading at first, then two, then four.
    for begin in range(0, 6 * ROWS_PER_LEVEL, 300):
        grow(writer, range(begin, begin + 300))
        size = paths.series.stat().st_size
        assert repr(read(reader, paths)) == in_file(paths)
        assert len(counts) == 1 and size - before <= counts[0] <= size - before + MAX_LINE
        counts.clear()
        assert repr(read(reader, paths)) == in_file(paths) and counts == [], "nothing is new"
        before = size
    writer.finish(live=True)
    assert repr(read(reader, paths)) == in_file(paths)
    assert sum(counts) < 3 * MAX_LINE


def test_a_torn_line_is_read_again_when_it_is_complete(paths: AttemptPaths, counts: list[int]) -> None:
    reader = IncrementalReader()
    grow(SeriesWriter(paths, lambda: NOW), range(200))
    whole = paths.series.read_bytes()
    paths.series.unlink()
    for size in (0, 5, len(HEAD), len(HEAD) + 9, len(whole) - 70, len(whole) - 9, len(whole)):
        with paths.series.open("ab") as file:
            file.write(whole[file.tell() : size])
        assert repr(read(reader, paths)) == in_file(paths)
    assert counts[-1] <= 3 * MAX_LINE and len(read(reader, paths)) == 200


def test_what_a_new_controller_cuts_and_writes_again_is_read_again(paths: AttemptPaths) -> None:
    """The last row of an attempt that had ended is short; whoever goes on with it replaces it by a complete one."""
    reader, first = IncrementalReader(), SeriesWriter(paths, lambda: NOW)
    grow(first, range(ROWS_PER_LEVEL + 3))
    first.finish(live=True)
    short = read(reader, paths)
    assert short[-1].readings == 1 and len(short) == ROWS_PER_LEVEL + 2
    again = SeriesWriter(paths, lambda: NOW + 5)
    grow(again, range(ROWS_PER_LEVEL + 9))
    rows = read(reader, paths)
    assert repr(rows) == in_file(paths) and rows[ROWS_PER_LEVEL + 1].readings == 2


@pytest.mark.parametrize("steps", [40, 100, 300], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "by another file"])
def test_a_series_that_was_replaced_is_read_anew(
    paths: AttemptPaths, tmp_path: Path, steps: int, in_place: bool
) -> None:
    reader = IncrementalReader()
    grow(SeriesWriter(paths, lambda: NOW), range(100))
    read(reader, paths)
    other = place(tmp_path, 2)
    grow(SeriesWriter(other, lambda: NOW + 77), range(steps))
    if in_place:
        paths.series.write_bytes(other.series.read_bytes())
        changed = paths.series.stat().st_mtime_ns + 1  # a clock of the disk may not have moved
        os.utime(paths.series, ns=(changed, changed))
    else:
        other.series.rename(paths.series)
    rows = read(reader, paths)
    assert repr(rows) == in_file(paths) and {row.at for row in rows} == {NOW + 77}


def test_a_damaged_end_sends_the_reader_to_the_log_and_a_mended_file_brings_it_back(paths: AttemptPaths) -> None:
    reader = IncrementalReader()
    grow(SeriesWriter(paths, lambda: NOW), range(50))
    read(reader, paths)
    whole = paths.series.read_bytes()
    paths.series.write_bytes(whole + b"0 [damaged]\n")
    assert reader.rows(paths, keep=True) is None
    paths.series.write_bytes(whole)
    assert len(read(reader, paths)) == 50
    paths.series.unlink()
    assert reader.rows(paths, keep=True) is None
    paths.series.symlink_to(paths.log)
    assert reader.rows(paths, keep=True) is None


def test_what_is_kept_is_bounded_and_the_longest_unused_goes_first(tmp_path: Path, counts: list[int]) -> None:
    places = [place(tmp_path, number) for number in range(1, 5)]
    for each in places:
        grow(SeriesWriter(each, lambda: NOW), range(100))
    reader = IncrementalReader(most_rows=250)
    for each in (places[0], places[1], places[0], places[2]):
        read(reader, each)
    counts.clear()
    for each in (places[0], places[2]):
        read(reader, each)
    assert counts == [], "both are kept"
    read(reader, places[1])
    assert len(counts) == 1, "it was the longest unused"
    read(reader, places[1], keep=False)
    counts.clear()
    read(reader, places[1], keep=False)
    assert len(counts) == 1, "an attempt that has ended takes no memory"
