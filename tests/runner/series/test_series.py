"""Tests the file of a series: written as the log is read, gone on with by a new controller, rebuilt from the log."""

import json
import os
import stat
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.model.paths import AttemptPaths, HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.logs.reading import Reading
from rung.recovery.series.point import Extremes, Row
from rung.runner.controller.log_watch import LogWatch
from rung.runner.files import log_file
from rung.runner.series.file_format import HEAD, line_of, lines_of, parse
from rung.runner.series.read import attempt_series, rebuilt
from rung.runner.series.write import SeriesWriter
from rung.runner.state.store import Store

NOW = 1000.0


@pytest.fixture
def paths(tmp_path: Path) -> AttemptPaths:
    folder = tmp_path / "jobs" / "j-1" / "attempts" / "1"
    folder.mkdir(parents=True)
    return AttemptPaths(folder)


@pytest.fixture
def job(tmp_path: Path):
    store = Store(tmp_path / "store.db")
    with store.transaction():
        found = store.add_job(JobSpec.model_validate({"name": "j", "run": "x"}), tmp_path, at=1.0)
    store.close()
    return found


def write_log(paths: AttemptPaths, steps: range, mode: str = "a") -> None:
    lines = [
        f"step {step} | loss {'nan' if step % 977 == 976 else 2 + step % 7} | grad_norm {1 + step % 5} | lr 1e-3 "
        f"| loss scale {2 ** (step % 9)} | {step % 11 + 1} it/s\n"
        for step in steps
    ]
    with paths.log.open(mode) as log:
        log.write("".join(lines))


def watch(paths: AttemptPaths, job, now=lambda: NOW) -> LogWatch:
    # By a clock that stands still, all that is there is read at once, however slow the machine is.
    return LogWatch(paths.log, job, series=SeriesWriter(paths, now), steady=lambda: 0.0)


def without_times(rows):
    return [row._replace(at=None) for row in rows]


def test_what_is_written_is_what_the_log_gives(paths, job):
    seen = watch(paths, job)
    for start in range(0, 3000, 500):
        write_log(paths, range(start, start + 500))
        seen.read()
    seen.read_to_end()
    written = attempt_series(paths).rows
    assert repr(without_times(written)) == repr(without_times(rebuilt(paths)))
    assert sum(row.readings for row in written) == 3000
    assert {row.at for row in written} == {NOW}
    assert {step for step, loss in attempt_series(paths).curve("loss", 4000) if loss != loss} == {976, 1953, 2930}
    assert stat.S_IMODE(paths.series.stat().st_mode) == 0o600


@pytest.mark.parametrize("torn", [0, 7, 2000])
def test_a_controller_that_was_killed_loses_and_doubles_no_point(paths, job, torn):
    write_log(paths, range(1500))
    watch(paths, job).read()
    paths.series.write_bytes(paths.series.read_bytes()[: paths.series.stat().st_size - torn])
    again = watch(paths, job, lambda: NOW + 50)
    again.read()
    again.read()
    write_log(paths, range(1500, 4000))
    again.read_to_end()
    rows = attempt_series(paths).rows
    assert repr(without_times(rows)) == repr(without_times(rebuilt(paths)))
    # What the log had before the controller came was not read when it was written.
    assert rows[0].at is None
    assert rows[-1].at == NOW + 50


def test_an_end_that_is_read_again_is_written_once(paths, job):
    write_log(paths, range(701))
    watch(paths, job).read_to_end()
    first = paths.series.read_bytes()
    watch(paths, job).read_to_end()
    assert paths.series.read_bytes() == first
    assert sum(row.readings for row in attempt_series(paths).rows) == 701


def test_a_torn_last_line_is_left_out_and_a_damaged_one_sends_the_reader_to_the_log(paths, job):
    write_log(paths, range(600))
    watch(paths, job).read_to_end()
    whole = paths.series.read_bytes()
    rows = len(attempt_series(paths).rows)
    paths.series.write_bytes(whole[:-9])
    assert len(attempt_series(paths).rows) == rows - 1
    middle = len(whole) // 2
    for damaged in (
        whole[:middle] + b"7" + whole[middle + 1 :],
        whole + whole.splitlines(keepends=True)[-1],
        b"",
        b"no series\n",
    ):
        paths.series.write_bytes(damaged)
        assert len(attempt_series(paths).rows) == (rows if damaged else 0)
    # Kept for the next reader once nobody writes it any more.
    attempt_series(paths, ended=True)
    assert parse(paths.series.read_bytes()).whole
    paths.log.unlink()
    assert len(attempt_series(paths).rows) == rows


def test_an_attempt_without_series_and_log_has_no_curve(paths):
    assert attempt_series(paths, ended=True).points() == []
    assert not paths.series.exists()


def test_a_disk_that_is_full_costs_the_series_and_not_the_job(paths, job, monkeypatch):
    write_log(paths, range(100))
    seen = watch(paths, job)
    seen.read()
    write_log(paths, range(100, 200))
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda file, data: len(data) // 2)
        seen.read()
    assert "disk is full" in seen.new_series_note()
    assert seen.new_series_note() == ""
    write_log(paths, range(200, 300))
    seen.read_to_end()
    assert not paths.series.exists()
    assert seen.detector.progress.furthest_step == 299
    assert sum(row.readings for row in attempt_series(paths).rows) == 300


def test_a_link_in_the_place_of_the_series_is_not_followed(paths, job, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(HEAD)
    paths.series.symlink_to(target)
    write_log(paths, range(5))
    watch(paths, job).read_to_end()
    assert target.read_bytes() == HEAD
    assert len(attempt_series(paths).rows) == 5


def test_after_a_gap_in_the_log_a_new_controller_goes_on_by_the_step(paths, job):
    write_log(paths, range(1000))
    watch(paths, job).read_to_end()
    before = sum(row.readings for row in attempt_series(paths).rows)
    # Its middle is gone: the next file begins far behind the first.
    write_log(paths, range(200), mode="w")
    later = log_file.segment_path(paths.log, 10_000_000)
    later.write_text("".join(f"step {step} | loss 2.0\n" for step in range(900, 1400)))
    watch(paths, job).read_to_end()
    rows = attempt_series(paths).rows
    assert rows[-1].last_step == 1399
    assert sum(row.readings for row in rows) == before + 400


def test_the_size_of_a_long_series_is_bounded(paths):
    writer = SeriesWriter(paths, lambda: NOW)
    paths.log.touch()
    for step in range(300_000):
        writer.add(step, Reading(loss=2.123456789, grad_norm=1.23456789 + step % 100, lr=1e-3, scale=65536.0))
    writer.finish(live=True)
    assert paths.series.stat().st_size < 1_200_000
    assert sum(row.readings for row in attempt_series(paths).rows) == 300_000


def test_the_controller_writes_the_series_of_a_real_run_and_the_history_reads_it(rung, home, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("for n in range(700): print(f'step {n} | loss {700 - n} | lr 1e-3', flush=True)\n")
    (tmp_path / "job.yaml").write_text("name: short\nrun: python train.py\nrecovery: {trials: off}\n")
    done = rung("launch", "-f", tmp_path / "job.yaml")
    assert done.code == 0, done.out + done.err
    paths = HomePaths(home).attempt("short-1", 1)
    assert repr(without_times(attempt_series(paths).rows)) == repr(without_times(rebuilt(paths)))
    paths.log.unlink()
    (attempt,) = json.loads(rung("history", "short", "--json").out)["attempts"]
    assert len(attempt["series"]) <= 500
    assert (attempt["series"][0]["loss"], attempt["series"][-1]["loss"]) == (700.0, 1.0)


def test_a_line_from_elsewhere_is_no_row():
    none, bad = b"null,null,null,null,null]", b'[1,"x",1,2],null,null,null,null]'
    for text in (b"[1]", b"[0,0,1,null," + none, b"[1,1,1,null," + none, b"[0,1,1,null," + bad, b"{}"):
        assert parse(HEAD + b"%08x %s\n" % (zlib.crc32(text), text)).rows == []


numbers = st.integers(-(1 << 61), 1 << 61)
extremes = st.none() | st.builds(Extremes, numbers, st.floats(), numbers, st.floats())


@given(st.tuples(*[extremes] * 5), numbers, st.none() | st.floats(0, 1e10))
def test_a_row_is_written_as_json_and_read_as_it_was(pairs, step, at):
    row = Row(1, step, *pairs, at)
    line = line_of(0, row)
    text = line[9:-1].decode()
    # The shortest spelling, with a number that is not finite as a text.
    assert json.dumps(json.loads(text), separators=(",", ":"), allow_nan=False) == text
    assert repr(parse(HEAD + line).rows) == repr([row])


@given(st.lists(st.tuples(*[extremes] * 5), max_size=4), st.integers(0, 500), st.none() | st.floats(0, 1e10))
def test_several_rows_are_written_as_each_alone_at_their_common_time(several, index, at):
    rows = [Row(1, step, *pairs) for step, pairs in enumerate(several)]
    alone = [line_of(index + n, row._replace(at=at)) for n, row in enumerate(rows)]
    assert lines_of(index, rows, at) == b"".join(alone)
