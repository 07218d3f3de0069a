"""Tests that the copy of a log is bounded, says what it leaves out, and loses nothing else.

In 0.1.0 the copy had no bound: a job could fill the controller's disk. On a full disk the cursor moved before the data
was written: 5,978 of 6,000 lines were lost without a word, and the job SUCCEEDED.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.log_copy import LogCopy
from rung.runner.engines.docker.log_stream import Entry
from rung.runner.files.log_file import MOST_SEGMENTS, SEGMENT_BYTES, LogFile, read_lines
from rung.runner.files.log_writer import LogWriter

KILOBYTE = 1024


def entries(first: int, last: int) -> list[Entry]:
    return [Entry(number * 10**9, f"line {number:06d}\n".encode()) for number in range(first, last)]


def small_copy(paths: AttemptPaths, segment: int = KILOBYTE, most: int = 4) -> LogCopy:
    return LogCopy(paths, LogWriter(paths.log, segment, most))


def used(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.name.startswith("log"))


def whole(path: Path) -> list[str]:
    return [line.text for line in read_lines(path)]


def first_asked(copy: LogCopy, log: list[Entry]) -> int:
    """Return the first entry that an engine sends for what the copy asks for."""
    since = int(copy.since.replace(".", "")) if copy.since else 0
    return next(number for number, entry in enumerate(log) if entry.at >= since)


@pytest.fixture
def paths(tmp_path: Path) -> AttemptPaths:
    return AttemptPaths(tmp_path / "attempts" / "1")


def test_an_endless_log_takes_bounded_room_and_keeps_its_beginning_and_its_end(paths: AttemptPaths) -> None:
    copy = small_copy(paths)
    copy.begin()
    for first in range(0, 10_000, 100):
        copy.take(entries(first, first + 100))
        assert used(paths.folder) < 5 * KILOBYTE
    copy.end()
    lines = whole(paths.log)
    (gap,) = [number for number, line in enumerate(lines) if line.startswith("rung: ")]
    kept = [int(line.removeprefix("line ")) for line in lines if line.startswith("line ")]
    assert kept[:gap] == list(range(gap))
    assert kept[gap:] == list(range(kept[gap], 10_000))
    left_out = (kept[gap] - gap) * len("line 000000\n")
    assert lines[gap].startswith(f"rung: {left_out} bytes are left out here, because the log is longer than 1.0 GiB")
    assert len(lines) == gap + 1 + 10_000 - kept[gap]


def test_nobody_meets_the_bound_in_a_normal_run(paths: AttemptPaths) -> None:
    """Ten lines of 100 bytes a second, for ten days."""
    assert SEGMENT_BYTES * MOST_SEGMENTS > 10 * 24 * 3600 * 10 * 100
    copy = LogCopy(paths)
    copy.begin()
    copy.take(entries(0, 50_000))
    copy.end()
    assert [file.name for file in paths.folder.iterdir()] == ["log"]


def test_a_reader_that_is_quick_enough_sees_every_line_and_a_slow_one_sees_the_gap(paths: AttemptPaths) -> None:
    copy, quick, slow = small_copy(paths), LogFile(paths.log), LogFile(paths.log)
    copy.begin()
    seen = b""
    first = slow.read(100)
    for number in range(0, 2000, 20):
        copy.take(entries(number, number + 20))
        while chunk := quick.read(333):
            seen += chunk
    copy.end()
    assert seen == b"".join(entry.piece for entry in entries(0, 2000))
    assert first == b""
    late = b""
    while chunk := slow.read(333):
        late += chunk
    assert late.count(b"rung: ") == 1
    assert late.endswith(b"line 001999\n")


def test_a_line_without_end_does_not_evade_the_bound(paths: AttemptPaths) -> None:
    copy = small_copy(paths, segment=KILOBYTE, most=3)
    copy.begin()
    for number in range(200):
        copy.take([Entry(number, b"x" * 65536)])
    copy.end()
    assert used(paths.folder) < 3 * ((1 << 20) + 2 * 65536)
    reader = LogFile(paths.log)
    text = b"".join(iter(lambda: reader.read(1 << 20), b""))
    assert text.count(b"\nrung: ") == 1


def test_a_new_controller_goes_on_in_the_middle_of_a_long_log(paths: AttemptPaths) -> None:
    log = entries(0, 3000)
    copy = small_copy(paths)
    copy.begin()
    copy.take(log[:1000])
    copy.save()
    copy.take(log[1000:1500])
    copy.end()
    # What came after the cursor was saved is read again, wherever it is now.
    copy = small_copy(paths)
    copy.begin()
    copy.take(log[first_asked(copy, log) :])
    copy.end()
    lines = [line for line in whole(paths.log) if line.startswith("line ")]
    assert lines == sorted(set(lines))
    assert lines[-1] == "line 002999"


def test_a_long_log_of_an_older_version_goes_on_in_the_next_file(paths: AttemptPaths) -> None:
    copy = LogCopy(paths)
    copy.begin()
    copy.take(entries(0, 500))
    copy.end()
    copy.save()
    copy = small_copy(paths)
    copy.begin()
    copy.take(entries(0, 600)[first_asked(copy, entries(0, 600)) :])
    copy.end()
    assert len(list(paths.folder.glob("log.*"))) == 2
    assert whole(paths.log) == [f"line {number:06d}" for number in range(600)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "rung-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_no_line_is_lost_on_a_disk_that_is_full_for_a_while(small_disk: Path) -> None:
    paths, log = AttemptPaths(small_disk / "1"), entries(0, 2000)
    paths.folder.mkdir()
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (56 * KILOBYTE))
    copy, failed, at = LogCopy(paths), 0, 0
    copy.begin()
    while at < len(log):
        try:
            copy.take(log[at : at + 50])
            at += 50
        except OSError:
            failed += 1
            assert failed < 10
            if failed == 3:
                ballast.unlink()
            # As the follower does: the stream is opened again, and the engine sends its log from a moment on.
            copy.begin()
            at = first_asked(copy, log)
    copy.end()
    assert failed == 3
    assert paths.log.read_bytes() == b"".join(entry.piece for entry in log)
    assert os.statvfs(small_disk).f_bavail > 0
