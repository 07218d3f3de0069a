"""Tests that a reader that goes on from a cursor comes to the same state as one that reads the log from its start."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from rung.recovery.series.point import Row
from rung.recovery.signatures import SIGNATURES
from rung.runner.files import log_file
from rung.runner.files.log_file import segment_path
from rung.runner.log_reading import cursor as cursors
from rung.runner.log_reading.cursor import cursor_path, read_cursor
from rung.runner.series import write as series_write
from rung.runner.series.read import attempt_series, rebuilt
from tests.runner.log_reading.watched import CORPUS, append, attempt_paths, new_watch, random_pieces, state_of
from tests.support.message_lines import BACKOFF_SAMPLES, CUT_SAMPLES, SAMPLES

TYPICAL = b"".join(b"step %d loss %.3f lr 1e-4 grad_norm 1.5 scale 1024\n" % (n, 2 + n % 7 / 10) for n in range(3000))


def without_times(rows: tuple[Row, ...] | list[Row]) -> str:
    return repr([row._replace(at=None) for row in rows])


def read_with_restarts(folder: Path, data: bytes, rng: random.Random, **recovery: object):
    """Read a log as it grows, with a new controller now and then; return the last watch and how often one went on."""
    paths = attempt_paths(folder)
    paths.log.touch()
    watch, went_on = new_watch(paths, slices=rng.random() < 0.5, **recovery), 0
    for piece in random_pieces(data, rng):
        append(paths, piece)
        for _ in range(rng.randrange(1, 4)):
            watch.read()
        if rng.random() < 0.7:
            watch.keep_cursor()
        if rng.random() < 0.5:
            # What is read after the cursor is read again by the next one.
            watch.read()
        if rng.random() < 0.7:
            watch = new_watch(paths, slices=rng.random() < 0.5, **recovery)
            went_on += read_cursor(paths.log, watch._settings) is not None
    while watch.read():
        pass
    return paths, watch, went_on


def read_at_once(folder: Path, data: bytes, **recovery: object):
    paths = attempt_paths(folder)
    append(paths, data)
    watch = new_watch(paths, **recovery)
    assert not watch.read()
    return paths, watch


def assert_same(tmp_path: Path, data: bytes, seed: int, **recovery: object) -> int:
    paths, watch, went_on = read_with_restarts(tmp_path / "restarts", data, random.Random(seed), **recovery)
    _, whole = read_at_once(tmp_path / "at_once", data, **recovery)
    assert watch.offset == whole.offset == len(data)
    assert state_of(watch) == state_of(whole)
    for each in (watch, whole):
        each.read_to_end()
    assert state_of(watch) == state_of(whole)
    assert watch.fault == whole.fault
    for clean in (False, True):
        ends = [each.detector.first_fault(ended=True, clean_exit=clean) for each in (watch, whole)]
        assert repr(ends[0]) == repr(ends[1])
    assert repr(watch.detector.progress) == repr(whole.detector.progress)
    assert without_times(attempt_series(paths).rows) == without_times(rebuilt(paths))
    return went_on


def test_the_logs_of_the_corpus_are_read_the_same_with_and_without_restarts(tmp_path):
    went_on = 0
    for number, log in enumerate(CORPUS[::4]):
        went_on += assert_same(tmp_path / str(number), log.read_bytes(), seed=number)
    assert went_on > len(CORPUS) // 4


def test_messages_of_every_kind_and_role_are_kept_by_a_cursor(tmp_path):
    rows = {(row.fault, row.role): SAMPLES[row.name][0] for row in SIGNATURES if row.name in SAMPLES}
    assert {kind for kind, _ in rows} == {row.fault for row in SIGNATURES}
    samples = [*rows.values(), *BACKOFF_SAMPLES.values(), *CUT_SAMPLES.values()]
    went_on = 0
    for number, line in enumerate(samples):
        message = line.encode() + b"\n"
        data = TYPICAL[:1500] + b'  File "x.py", line 3, in f\n    y = f(x)\n' + message + TYPICAL[1500:2500] + message
        went_on += assert_same(tmp_path / str(number), data, seed=number)
    assert went_on > len(samples)


def test_rules_and_bad_numbers_are_kept_by_a_cursor(tmp_path):
    rules = [{"name": "mine", "pattern": "disk went away", "action": "stop"}]
    bad = TYPICAL[:20_000].replace(b"step 200 loss", b"disk went away\nstep 200 loss")
    bad = bad.replace(b"step 300 loss 2.6", b"step 300 loss nan").replace(b"step 301 loss 2.0", b"step 301 loss nan")
    assert bad.count(b"went") == 1 and bad.count(b"nan") == 2
    for seed in range(4):
        assert_same(tmp_path / str(seed), bad + b'  File "x.py", line 3, in f\n', seed=seed, rules=rules)


@pytest.fixture
def kept(tmp_path):
    """Return the files of an attempt with a cursor after two thirds of its log."""
    paths = attempt_paths(tmp_path)
    append(paths, TYPICAL[:100_000])
    watch = new_watch(paths)
    watch.read()
    watch.keep_cursor()
    append(paths, TYPICAL[100_000:])
    return paths


def went_on_from(paths, **recovery: object) -> int:
    """Return the place at which a new watch began to read."""
    watch = new_watch(paths, slices=True, **recovery)
    watch._begin()
    return watch.offset


def test_a_sound_cursor_is_gone_on_from(kept):
    assert went_on_from(kept) == 100_000


def test_a_cursor_is_gone_on_from_after_many_slices_and_restarts(tmp_path):
    paths = attempt_paths(tmp_path)
    for end in range(20_000, 100_001, 20_000):
        append(paths, TYPICAL[end - 20_000 : end])
        watch = new_watch(paths, slices=True)
        while watch.read():
            pass
        assert watch.offset == end
        watch.keep_cursor()
        assert went_on_from(paths) == end


def test_the_rows_of_the_curves_before_the_place_are_not_parsed_again(kept, monkeypatch):
    size = kept.series.stat().st_size
    asked = []
    parse_more = series_write.parse_more
    monkeypatch.setattr(series_write, "parse_more", lambda data, count: asked.append(data) or parse_more(data, count))
    monkeypatch.setattr(series_write, "parse", None)
    assert went_on_from(kept) == 100_000
    assert len(b"".join(asked)) < size / 10


def change_head(name: str, value: object):
    def change(paths) -> None:
        head, _, body = cursor_path(paths.log).read_bytes().partition(b"\n")
        cursor_path(paths.log).write_bytes(json.dumps(json.loads(head) | {name: value}).encode() + b"\n" + body)

    return change


def replace_log(paths) -> None:
    other = paths.log.with_name("other")
    other.write_bytes(paths.log.read_bytes())
    other.rename(paths.log)


def change_state(paths) -> None:
    path = cursor_path(paths.log)
    path.write_bytes(path.read_bytes().replace(b'"_seen":', b'"_sawn":', 1))


def change_last_bytes(paths) -> None:
    data = bytearray(paths.log.read_bytes())
    data[99_990] ^= 1
    with paths.log.open("r+b") as log:
        log.write(data)


def change_series(paths) -> None:
    data = bytearray(paths.series.read_bytes())
    data[5_000] ^= 1
    paths.series.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda paths: cursor_path(paths.log).write_bytes(b""),
        lambda paths: cursor_path(paths.log).write_bytes(b"[1]\n"),
        lambda paths: cursor_path(paths.log).write_bytes(cursor_path(paths.log).read_bytes()[:-20]),
        lambda paths: paths.log.write_bytes(TYPICAL[:50_000]),
        change_head("code", "other code"),
        change_head("offset", -5),
        change_head("offset", True),
        change_head("more", 1),
        replace_log,
        change_state,
        change_last_bytes,
        lambda paths: paths.series.unlink(),
        change_series,
        lambda paths: paths.series.write_bytes(paths.series.read_bytes()[:10_000]),
    ],
    ids=range(14),
)
def test_anything_odd_sends_the_reader_to_the_start(kept, damage):
    damage(kept)
    assert went_on_from(kept) == 0


def test_a_cursor_for_other_settings_is_not_taken(kept):
    assert went_on_from(kept, early_warning=None) == 0
    assert went_on_from(kept, rules=[{"name": "mine", "pattern": "x", "action": "stop"}]) == 0


def test_a_sound_file_with_a_state_that_is_none_sends_the_reader_to_the_start(kept):
    watch = new_watch(kept)
    for text in ("[]", '["object","Popen",{}]', '["same",3]', '["tuple",1,2,3,4]', "[" * 100_000):
        cursors.write_cursor(cursors.LogFile(kept.log, 100_000), watch._settings, text, sampled=False)
        assert read_cursor(kept.log, watch._settings).place is not None
        assert went_on_from(kept) == 0


def test_only_a_long_log_has_a_cursor_and_its_file_is_private(tmp_path):
    paths = attempt_paths(tmp_path)
    append(paths, TYPICAL)
    new_watch(paths, slices=True).read_to_end()
    assert not cursor_path(paths.log).exists()
    append(paths, (b"words " * 60 + b"\n") * 4000)
    new_watch(paths, slices=True).read_to_end()
    assert cursor_path(paths.log).stat().st_mode & 0o777 == 0o600
    assert went_on_from(paths) > 1 << 20


def test_all_files_of_a_log_are_read_in_one_go(tmp_path, monkeypatch):
    """A short read is the end of the log only in its last file."""
    monkeypatch.setattr(log_file, "SEGMENT_BYTES", 100)
    paths = attempt_paths(tmp_path)
    append(paths, TYPICAL[:100])
    segment_path(paths.log, 100).write_bytes(TYPICAL[100:250])
    segment_path(paths.log, 400).write_bytes(b"step 20 loss 0.5\n")
    watch = new_watch(paths)
    assert not watch.read()
    assert watch.offset == 400 + len(b"step 20 loss 0.5\n")
    assert watch.detector.progress.step == 20


def test_the_end_of_a_log_is_read_even_behind_a_file_that_is_too_short(tmp_path):
    paths = attempt_paths(tmp_path)
    append(paths, TYPICAL[:100])
    segment_path(paths.log, 400).write_bytes(b"step 20 loss 0.5\n")
    watch = new_watch(paths)
    watch.read_to_end()
    assert watch.offset == 400 + len(b"step 20 loss 0.5\n")
    assert watch.detector.progress.step == 20


def test_little_of_a_slow_log_comes_after_its_cursor(tmp_path):
    """What comes after it, each new controller reads again before it attends to the job."""
    now, paths, line = [0.0], attempt_paths(tmp_path), b"step 1 loss 1.5 lr 1e-4 grad_norm 1.0\n"
    append(paths, (b"words " * 60 + b"\n") * 4000)
    watch = new_watch(paths)
    watch._steady = lambda: now[0]
    watch.read_to_end()
    watch.keep_cursor()
    behind = []
    for _ in range(200):
        append(paths, line * 25)
        now[0] += 5
        watch.read()
        behind.append(watch.offset - read_cursor(paths.log, watch._settings).place.offset)
    assert max(behind) <= 17 * 1024 and 10 <= behind.count(0) <= 13, "each takes as long as reading 4 kB"
