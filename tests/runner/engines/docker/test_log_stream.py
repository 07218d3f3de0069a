"""Tests the parser of an engine's log stream: however the data is cut, and without guessing an end."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.model.errors import HostUnreachable
from rung.runner.engines.docker.log_stream import Entry, LogStream, entry

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TIME = b"2026-11-15T10:03:29.123456789Z "
AT = 1794737009 * 10**9 + 123456789


def frame(text: bytes, kind: int = 1) -> bytes:
    return bytes([kind, 0, 0, 0]) + len(text).to_bytes(4, "big") + text


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Pieces:
    """A socket that gives its pieces one by one, then nothing for now, or its end."""

    def __init__(self, pieces: list[bytes], *, ends: bool = False) -> None:
        self.pieces, self.ends, self.closed = [piece for piece in pieces if piece], ends, False

    def recv(self, size: int) -> bytes:
        if self.pieces:
            return self.pieces.pop(0)
        if self.ends:
            return b""
        raise TimeoutError

    def settimeout(self, seconds: float | None) -> None:
        assert seconds == 0.0

    def fileno(self) -> int:
        return 7

    def close(self) -> None:
        self.closed = True


def read_all(stream: LogStream, pieces: Pieces) -> list[Entry]:
    found = stream.read()
    while pieces.pieces:
        found += stream.read()
    return found


@given(
    st.lists(st.binary(max_size=200), max_size=10), st.lists(st.integers(0, 3000), max_size=20), st.integers(1, 3000)
)
def test_the_entries_do_not_depend_on_how_the_bytes_are_split(lines: list[bytes], cuts: list[int], size: int) -> None:
    body = b"".join(frame(TIME + line) for line in lines)
    data = HEAD + b"".join(chunk(body[at : at + size]) for at in range(0, len(body), size)) + b"0\r\n\r\n"
    places = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    pieces = Pieces([data[a:b] for a, b in pairwise(places)])
    stream = LogStream(pieces)  # type: ignore[arg-type]
    assert read_all(stream, pieces) == [Entry(AT, line) for line in lines]
    assert stream.ended


def test_the_end_of_the_connection_is_not_the_end_of_the_log() -> None:
    stream = LogStream(Pieces([HEAD, chunk(frame(TIME + b"a\n"))], ends=True))  # type: ignore[arg-type]
    with pytest.raises(HostUnreachable):
        stream.read()
    assert not stream.ended


def test_no_data_yet_is_not_the_end_of_the_log() -> None:
    stream = LogStream(Pieces([HEAD]))  # type: ignore[arg-type]
    assert stream.read() == []
    assert not stream.ended


def test_a_body_without_chunks_ends_with_its_connection() -> None:
    stream = LogStream(Pieces([b"HTTP/1.0 200 OK\r\n\r\n", frame(TIME + b"a\n")], ends=True))  # type: ignore[arg-type]
    assert stream.read() == [Entry(AT, b"a\n")]
    assert stream.ended


def test_the_engines_refusal_is_reported_without_its_control_codes() -> None:
    answer = b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b'{"message":"No \x1b[2Jsuch"}')
    stream = LogStream(Pieces([answer, b"0\r\n\r\n"]))  # type: ignore[arg-type]
    assert stream.read() == []
    assert stream.damage == 'no log: {"message":"No such"}'


def test_an_error_of_the_engine_ends_the_log_after_the_valid_entries() -> None:
    body = frame(TIME + b"a\n") + frame(b"Error grabbing logs: invalid character", kind=3)
    stream = LogStream(Pieces([HEAD, chunk(body)]))  # type: ignore[arg-type]
    assert stream.read() == [Entry(AT, b"a\n")]
    assert stream.damage == "Error grabbing logs: invalid character"


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 70000,
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 zwei OK\r\n\r\n",
        HEAD + b"rubbish\r\n",
        HEAD + chunk(b"\1\0\0\0\xff\xff\xff\xff"),
        HEAD + chunk(frame(b"no time at all\n")),
        HEAD + b"-5\r\n" + frame(TIME + b"a\n"),
        HEAD + b"0x10\r\n" + frame(TIME + b"a\n"),
        HEAD + b"1" * 65,
        HEAD + b"2\r\n\1\0rubbish",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_data_that_is_no_engine_log_is_refused(data: bytes) -> None:
    stream = LogStream(Pieces([data]))  # type: ignore[arg-type]
    assert stream.read() == []
    assert stream.damage


def test_the_entries_before_the_damage_are_kept() -> None:
    body = frame(TIME + b"a\n") + frame(b"2026-99-99T10:00:00Z b\n")
    stream = LogStream(Pieces([HEAD, chunk(body), b"rubbish"]))  # type: ignore[arg-type]
    assert stream.read() == [Entry(AT, b"a\n")]
    assert stream.damage == "a line of the log has a time that does not exist"


@pytest.mark.parametrize(
    ("time", "at"),
    [
        (b"1970-01-01T00:00:01Z ", 10**9),
        (b"1970-01-01T00:00:01.5Z ", 1_500_000_000),
        (b"1970-01-01T00:00:01.000000001Z ", 1_000_000_001),
    ],
)
def test_times_are_read_to_the_nanosecond(time: bytes, at: int) -> None:
    assert entry(time + b"x") == Entry(at, b"x")
