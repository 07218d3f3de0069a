"""Tests every parser of an engine's answers on many made-up ones: only our own errors, and bounded memory.

`make test-long` tries 100,000 inputs of each kind.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.container_state import (
    ContainerState,
    Record,
    Status,
    outcome,
    parse_inspect,
    parse_list,
    parse_record,
    parse_time,
)
from rung.runner.engines.docker.images import Progress, archive_id, labelled_archs
from rung.runner.engines.docker.log_copy import GAP, MARGIN, STEP, LogCopy
from rung.runner.engines.docker.log_stream import MAX_FRAME, Entry, Frames, entry
from rung.runner.engines.on_host.done_record import from_dict, to_dict
from rung.runner.files.log_file import LogFile
from rung.runner.files.log_writer import LogWriter
from rung.runner.hosts.http_exchange import (
    MAX_CHUNK_LINE,
    MAX_HEAD,
    MAX_LINE,
    AnswerDamaged,
    Body,
    as_object,
    as_objects,
    json_lines,
    parse_json,
)
from rung.runner.seams.engine import Presence
from tests.support.random_inputs import COUNTS, run

TEXTS = [
    "",
    "running",
    "exited",
    "dead",
    "0001-01-01T00:00:00Z",
    "9999-99-99T99:99:99Z",
    "\u0662\u0660",
    "\x1b[2J",
    "x",
]
NUMBERS = [0, 1, -1, 137, 1 << 31, -(1 << 63), 10**30, 0.5, -1.5, 1e308, float("inf"), float("nan"), None, True, False]
KEYS = [
    *(
        "State",
        "Status",
        "ExitCode",
        "StartedAt",
        "FinishedAt",
        "OOMKilled",
        "Names",
        "Config",
        "Labels",
        "Id",
        "error",
    ),
    *("exit_code", "ended_at", "status", "id", "progressDetail", "current", "total", "rung.cuda.archs", "RepoDigests"),
]


def any_value(chance: Random, depth: int = 3) -> Any:
    """Return a JSON value with the keys that an engine uses. Far quicker than a strategy that is recursive."""
    kind = chance.randrange(6 if depth else 3)
    if kind < 2:
        return chance.choice(TEXTS if kind else NUMBERS)
    if kind == 2:
        return chance.getrandbits(chance.randrange(1, 90))
    if kind == 3:
        return [any_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    return any_object(chance, depth)


def any_object(chance: Random, depth: int = 3) -> dict[str, Any]:
    return {chance.choice(KEYS): any_value(chance, depth - 1) for _ in range(chance.randrange(6))}


SEED = st.integers(0, (1 << 60) - 1)
JSON = SEED.map(lambda seed: any_value(Random(seed)))
OBJECT = SEED.map(lambda seed: any_object(Random(seed)))
SCALARS = st.sampled_from([*TEXTS, *NUMBERS])

# Pieces of answers that are almost right, in any order.
HEADS = [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 404 no\r\n", b"HTTP/1.1 ", b"Transfer-Encoding: chunked\r\n", b"\r\n"]
SIZES = [
    b"Content-Length: 5\r\n",
    b"Content-Length: -1\r\n",
    b"5\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"-1\r\n",
]
PIECES = st.lists(st.sampled_from([*HEADS, *SIZES, b"hello\r\n", b"1" * 70]) | st.binary(max_size=30), max_size=14)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    """Yield the data in pieces."""
    edges = sorted({0, len(data), *(place for place in places if place < len(data))})
    yield from (data[a:b] for a, b in pairwise(edges))


CUTS = st.lists(st.integers(0, 400), max_size=6)


@COUNTS
def test_any_bytes_as_an_answer(count: int) -> None:
    def check(head: bool, pieces: list[bytes], cuts: list[int]) -> None:
        whole, body, out = (CHUNKED if head else b"") + b"".join(pieces), Body(), 0
        with suppress(AnswerDamaged):
            for piece in cut(whole, cuts):
                out += len(body.feed(piece))
                assert len(body._raw) <= MAX_HEAD + MAX_CHUNK_LINE + len(piece)
            body.close()
        assert out <= len(whole)
        # However the bytes are cut, the result is the same.
        once = Body()
        try:
            expected = once.feed(whole)
        except AnswerDamaged:
            return
        assert (out, body.status, body._chunked) == (len(expected), once.status, once._chunked)

    run(count, check, st.booleans(), PIECES, CUTS)


@COUNTS
def test_any_bytes_as_frames_of_a_log(count: int) -> None:
    times = st.sampled_from([b"2026-11-15T10:00:00Z ", b"2026-99-15T10:00:00Z ", b"0000-00-00T00:00:00.1Z ", b""])
    frames = st.tuples(st.integers(0, 4), st.integers(-2, 2), times, st.binary(max_size=20))

    def check(made: list[tuple[int, int, bytes, bytes]], rest: bytes, cuts: list[int]) -> None:
        whole = rest.join(
            bytes([kind, 0, 0, 0]) + max(0, len(time + text) + off).to_bytes(4, "big") + time + text
            for kind, off, time, text in made
        )
        parser, found = Frames(), []
        for piece in cut(whole, cuts):
            found += parser.feed(piece)
            assert len(parser._raw) <= MAX_FRAME + 8 + len(piece)
        assert sum(len(each.piece) for each in found) <= len(whole)
        assert parser.damage == parser.damage[:500]
        again = Frames()
        assert again.feed(whole) == found
        assert bool(again.damage) == bool(parser.damage)

    run(count, check, st.lists(frames, max_size=6), st.binary(max_size=3) | st.just(b""), CUTS)


@COUNTS
def test_any_bytes_as_one_entry(count: int) -> None:
    digits = st.from_regex(rb"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z ")

    def check(frame: bytes) -> None:
        with suppress(AnswerDamaged):
            assert isinstance(entry(frame).at, int)

    run(count, check, digits | st.binary(max_size=60))


@COUNTS
def test_any_json_as_a_container(count: int) -> None:
    def check(value: dict[str, Any], record: str) -> None:
        state = parse_inspect(value)
        assert state.exit_code is None or abs(state.exit_code) <= 1 << 32
        end = outcome(state, parse_record(record))
        assert from_dict(json.loads(json.dumps(to_dict(end)))) == end

    states = st.fixed_dictionaries({"State": OBJECT})
    run(
        count,
        check,
        OBJECT | states,
        st.sampled_from(["", "began", "strange", 'done\n{"exit_code": 0, "ended_at": 1}']),
    )


@COUNTS
def test_any_json_as_a_list_of_containers(count: int) -> None:
    def check(value: Any) -> None:
        try:
            listed = as_objects(value)
        except AnswerDamaged:
            return
        assert all(isinstance(name, str) and isinstance(each, Status) for name, each in parse_list(listed).items())

    run(count, check, st.lists(OBJECT, max_size=5) | JSON)


@COUNTS
def test_any_text_as_a_record(count: int) -> None:
    def check(text: str) -> None:
        record = parse_record(text)
        assert record.done == (record.exit_code is not None)
        end = outcome(ContainerState(Status.ABSENT), record)
        assert end.presence in (Presence.ENDED, Presence.LOST)

    texts = OBJECT.map(json.dumps) | JSON.map(json.dumps) | st.text(max_size=60)
    run(
        count,
        check,
        st.sampled_from(["done\n", "began\n", "strange\n", ""]).flatmap(lambda word: texts.map(word.__add__)),
    )


@COUNTS
def test_any_text_as_a_time(count: int) -> None:
    def check(value: Any) -> None:
        assert parse_time(value) is None or isinstance(parse_time(value), float)

    run(count, check, st.from_regex(r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?") | SCALARS)


@COUNTS
def test_any_bytes_as_status_lines(count: int) -> None:
    def check(lines: list[bytes], cuts: list[int]) -> None:
        reported: list[str] = []
        clock = iter(range(10**6))
        progress = Progress("x", reported.append, lambda: float(next(clock)))
        with suppress(AnswerDamaged):
            for status in json_lines(cut(b"".join(lines), cuts)):
                progress.update(status)
        assert all(len(text) < 200 for text in reported)

    detail = st.fixed_dictionaries({"status": st.just("Downloading"), "progressDetail": JSON, "id": SCALARS})
    line = (OBJECT | detail | JSON).map(lambda value: json.dumps(value).encode() + b"\r\n")
    run(count, check, st.lists(line | st.binary(max_size=20), max_size=5), CUTS)


def test_a_status_line_that_is_too_long_is_given_up_early() -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1000

    with pytest.raises(AnswerDamaged):
        list(json_lines(endless()))
    assert taken * 1000 <= MAX_LINE + 2000


@COUNTS
def test_any_json_as_an_image(count: int) -> None:
    def check(value: Any, text: bytes) -> None:
        with suppress(AnswerDamaged):
            labelled_archs(as_object(value))
        with suppress(AnswerDamaged):
            parse_json(text)
        with suppress(EngineError):
            assert len(archive_id(text)) == 71

    run(count, check, OBJECT | JSON, JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40))


@COUNTS
def test_a_copy_in_segments_loses_and_doubles_nothing(count: int) -> None:
    """Streams, writes and controllers end anywhere; the log is long, and its middle is left out."""
    moments = st.lists(st.sampled_from([0, 1, 2, STEP, STEP + 1, 3 * STEP, MARGIN]), max_size=30)
    stops = st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 5), st.booleans(), st.booleans(), st.integers(0, 3)), max_size=4
    )
    # In memory where that is possible: every save waits for the disk.
    folder = Path(tempfile.mkdtemp(dir=next(Path("/dev").glob("shm"), None)))

    def check(moments: list[int], stops: list[tuple[int, int, bool, bool, int]], segment: int, most: int) -> None:
        shutil.rmtree(folder)
        paths = AttemptPaths(folder)
        log = [Entry(10**18 + moment, f"{number} {'x' * number}\n".encode()) for number, moment in enumerate(moments)]
        made = lambda: LogCopy(paths, FailingWriter(paths.log, segment, most))  # noqa: E731
        copy = made()
        for written, batch, save, killed, failures in [*stops, (len(log), 7, True, False, 0)]:
            FailingWriter.failures = failures
            for _ in range(failures + 1):
                with suppress(OSError):
                    follow(copy, log[:written], batch)
                    break
            if save:
                copy.save()
            copy.end()
            copy = made() if killed else copy
        expected = b"".join(each.piece for each in log)
        room = sum(file.stat().st_size for file in folder.glob("log*"))
        assert room <= most * (segment + 50)
        read = whole(paths.log)
        assert GAP not in read
        first, _, rest = read.partition(b"rung: ")
        assert expected.startswith(first)
        assert expected.endswith(rest.partition(b"\n")[2] if rest else first)
        assert rest or read == expected

    try:
        run(count, check, moments, stops, st.integers(1, 200), st.integers(2, 5))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class FailingWriter(LogWriter):
    """Writes to a disk that is full now and then: a part is written, and the rest is refused."""

    failures = 0

    def _write(self, data: bytes) -> None:
        if FailingWriter.failures:
            FailingWriter.failures -= 1
            super()._write(data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        super()._write(data)


def follow(copy: LogCopy, log: list[Entry], batch: int) -> None:
    """Do what the follower does with one stream."""
    copy.begin()
    since = int(copy.since.replace(".", "")) if copy.since else 0
    stream = [each for each in log if each.at >= since]
    for at in range(0, len(stream), batch):
        copy.take(stream[at : at + batch])


def whole(path: Path) -> bytes:
    reader = LogFile(path)
    return b"".join(iter(lambda: reader.read(64), b""))


def test_records_with_another_shape_are_no_records() -> None:
    assert parse_record("done\n[]") == Record(began=True)
