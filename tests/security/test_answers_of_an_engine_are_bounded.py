"""Tests that an engine can neither fill the controller's memory nor hold it up: whatever it sends, a call ends.

In 0.1.0 an `inspect` of 300 MiB took 948 MiB, deep JSON ended in a RecursionError, an endless line with the size of a
chunk cost quadratic time, and an answer that came byte by byte kept its caller for ever.
"""

from __future__ import annotations

import gzip
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import EngineError, HostUnreachable
from rung.runner.engines.docker.api import EngineApi
from tests.support.lying_engine import LyingEngine, answer, lying_engine

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
MEGABYTE = 1 << 20
ANSWER_BYTES = 4 * MEGABYTE
IMAGE = "registry.example.org/x@sha256:" + "0" * 64


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LyingEngine]:
    with lying_engine(tmp_path) as server:
        yield server


@pytest.fixture
def api(engine: LyingEngine) -> EngineApi:
    return EngineApi(engine, engine.path)  # type: ignore[arg-type]


def peak_of(call: Callable[[], Any]) -> int:
    """Return the most memory that a call took which ends in an EngineError."""
    tracemalloc.start()
    try:
        with pytest.raises(EngineError):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "head", [HEAD + b"\r\n", HEAD + b"Content-Length: 314572800\r\n\r\n", HEAD + b"Content-Length: 5\r\n\r\n"]
)
def test_an_answer_of_hundreds_of_megabytes_is_given_up_early(engine: LyingEngine, api: EngineApi, head: bytes) -> None:
    engine.replies["/a/json"] = engine.flood(head + b'{"State":"', b"x" * 65536, 300 * MEGABYTE)
    assert peak_of(lambda: api.inspect("a")) < 4 * ANSWER_BYTES
    assert engine.sent < 300 * MEGABYTE


@pytest.mark.parametrize("piece", [b"[", b'{"a":', b"[[],{},", b"9"])
def test_json_that_is_deep_or_long_or_has_endless_numbers_is_refused(
    engine: LyingEngine, api: EngineApi, piece: bytes
) -> None:
    engine.replies["/a/json"] = answer(piece * 200_000)
    with pytest.raises(EngineError, match="titan1: container a: the answer is not JSON as an engine sends it"):
        api.inspect("a")


@pytest.mark.parametrize(
    ("head", "then"),
    [
        (CHUNKED, b"0" * 65536),
        (CHUNKED, b"1;" + b"x" * 65536),
        (HEAD, b"X: y\r\n" * 10_000),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        (b"", b"HTTP/1.1 200 OK" * 10_000),
        (CHUNKED + b"ffffffffffffffff\r\n", b"x" * 65536),
    ],
    ids=["size of a chunk", "extension of a chunk", "head", "continue", "first line", "one chunk"],
)
def test_a_part_of_an_answer_that_never_ends_is_given_up_in_little_time_and_memory(
    engine: LyingEngine, api: EngineApi, head: bytes, then: bytes
) -> None:
    engine.replies["/a/json"] = engine.flood(head, then, 300 * MEGABYTE)
    began = time.monotonic()
    assert peak_of(lambda: api.inspect("a")) < 4 * ANSWER_BYTES
    assert time.monotonic() - began < 10
    assert engine.sent < 300 * MEGABYTE


def test_an_answer_that_comes_byte_by_byte_is_given_up(
    engine: LyingEngine, api: EngineApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineApi._ask, "__kwdefaults__", {"headers": None, "seconds": 0.5})

    def drip(connection: Any) -> None:
        for byte in HEAD + b"\r\n{" + b" " * 1000:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    engine.replies["/a/json"] = drip
    began = time.monotonic()
    with pytest.raises(HostUnreachable, match=r"no complete answer in 0\.5 s|timed out"):
        api.inspect("a")
    assert time.monotonic() - began < 5


def test_a_compressed_answer_is_not_unpacked(engine: LyingEngine, api: EngineApi) -> None:
    """A bound on what comes in would not bound what it unpacks to."""
    bomb = gzip.compress(b'{"State":"' + b"x" * (100 * MEGABYTE) + b'"}')
    assert len(bomb) < ANSWER_BYTES
    engine.replies["/a/json"] = answer(bomb, b"200 OK", b"Content-Encoding: gzip")
    assert peak_of(lambda: api.inspect("a")) < 4 * ANSWER_BYTES


@pytest.mark.parametrize("body", [b"[]", b"7", b'"x"', b"null", b"\xff\xfe", b"{}{}", b"NaN"])
def test_an_answer_of_another_shape_is_an_error_of_one_line(engine: LyingEngine, api: EngineApi, body: bytes) -> None:
    for path in ("/a/json", "/create", "/json", "/wait"):
        engine.replies[path] = answer(body)
    for call in (
        lambda: api.inspect("a"),
        lambda: api.image(IMAGE),
        lambda: api.digest("x:1"),
        lambda: api.wait("a", 5.0),
        lambda: list(api.pull(IMAGE)),
    ):
        with pytest.raises(EngineError, match=r"^titan1: [^\n]{1,600}$"):
            call()
    engine.replies = {"/version": answer(body)}
    with pytest.raises(EngineError, match=r"^titan1: [^\n]{1,600}$"):
        api.negotiate_version()


def test_the_words_of_an_engine_are_cut_and_cleaned(engine: LyingEngine, api: EngineApi) -> None:
    engine.replies["/start"] = answer(b'{"message": "\\u001b[2Jno\\u202e' + b"x" * 10_000 + b'"}', b"500 no")
    with pytest.raises(EngineError, match=r"^titan1: container a: nox{400,500}$"):
        api.start("a")


def test_a_version_cannot_add_to_a_request(engine: LyingEngine, api: EngineApi) -> None:
    engine.replies["/version"] = answer(b'{"ApiVersion": "9.9", "MinAPIVersion": "9.1 \\r\\nX-Evil: 1"}')
    api.negotiate_version()
    api.inspect("a")
    assert engine.heads[-1].startswith("GET /v1.41/containers/a/json HTTP/1.1\r\n")


@pytest.mark.parametrize("path", ["/images/create", "/images/load"])
def test_a_status_line_without_end_is_given_up(engine: LyingEngine, api: EngineApi, path: str) -> None:
    engine.replies[path] = engine.flood(CHUNKED + b"fffffff\r\n", b"x" * 65536, 100 * MEGABYTE)
    calls = {"/images/create": lambda: list(api.pull(IMAGE)), "/images/load": lambda: api.load([b"tar"])}
    assert peak_of(calls[path]) < 4 * MEGABYTE
    assert engine.sent < 100 * MEGABYTE


def test_a_pull_reports_its_progress_and_its_error(engine: LyingEngine, api: EngineApi) -> None:
    lines = [b'{"status": "Downloading"}\r\n', b'{"status": "x"}', b"\r\n\r\n", b'{"error": "no\\u001b[2J"}']
    engine.replies["/create"] = CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in lines) + b"0\r\n\r\n"
    found: list[str] = []
    with pytest.raises(EngineError, match=rf"^titan1: image {IMAGE}: no$"):
        for status in api.pull(IMAGE):
            found.append(status["status"])
    assert found == ["Downloading", "x"]
    assert engine.heads[-1].startswith("POST /v1.41/images/create?fromImage=registry.example.org%2Fx&tag=sha256%3A0")


def test_the_output_of_a_look_is_bounded_whatever_its_frames_say(engine: LyingEngine, api: EngineApi) -> None:
    engine.replies["/logs"] = engine.flood(CHUNKED + b"fffffff\r\n\1\0\0\0\xff\xff\xff\xff", b"x" * 65536)
    assert peak_of(lambda: api.output("a", errors=False, size=MEGABYTE)) < 8 * MEGABYTE
    frame = b"2026-11-15T10:00:00Z word\n"
    framed = bytes([1, 0, 0, 0]) + len(frame).to_bytes(4, "big") + frame
    engine.replies["/logs"] = answer(framed * 1000)
    assert api.output("a", errors=True, size=12) == b"word\nword\nwo"
    assert "stdout=0&stderr=1" in engine.heads[-1]
