"""Tests that a host which floods us or falls silent costs bounded memory and time, and gives an error of ours.

Each question is asked by the product's own code in a process of its own, which reports its peak of memory.
"""

from __future__ import annotations

import functools
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import pace
from tests.support.hostile_engine import Ran
from tests.support.hostile_lies import CHUNKED, Lie, chunk, falls_silent, floods, frame, says, sends
from tests.support.hostile_site import HostileSite
from tests.support.hostile_ssh import Endless, HostileHost, Reply, endless, entry, folder

MEBIBYTE = 1 << 20
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
OPEN = HEAD + b"\r\n"
SIZED = HEAD + b"Content-Length: %d\r\n\r\n"
# What one answer of a host may cost: its bytes, and the values made of them.
MOST_MEMORY = 200 * MEBIBYTE
MOST_SECONDS = 40.0


HUGE_FRAME = chunk(b"\x01\0\0\0\xff\xff\xff\xff" + b"z" * 60000)


@functools.cache
def compressed(mebibytes: int) -> bytes:
    """Return JSON of this size as a few kilobytes of gzip."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    pieces = [b'"', *[b"a" * MEBIBYTE] * mebibytes, b'"']
    return b"".join([*map(packer.compress, pieces), packer.flush()])


def large(size: int) -> list[bytes]:
    pieces = [b'{"State": {"Status": "running"}, "x": "', *[b"a" * MEBIBYTE] * (size // MEBIBYTE), b'"}']
    return [SIZED % sum(map(len, pieces)), *pieces]


# The names of what is flooded, the question that meets it, and the answer.
FLOODS: dict[str, tuple[str, str, Lie]] = {
    "an inspection of 300 MiB": ("stop", "inspect", sends(*large(300 * MEBIBYTE))),
    "an image of 300 MiB": ("image", "image", sends(*large(300 * MEBIBYTE))),
    "a list of 300 MiB": ("follow", "list", sends(*large(300 * MEBIBYTE))),
    "a version of 300 MiB": ("survey", "version", sends(*large(300 * MEBIBYTE))),
    "an answer without an end": ("stop", "inspect", floods(OPEN, b"x" * 65536)),
    "an error without an end": ("run", "create", floods(b"HTTP/1.1 500 No\r\n\r\n", b"x" * 65536)),
    "deep JSON": ("image", "image", sends(SIZED % 2_000_000, b"[" * 1_000_000, b"]" * 1_000_000)),
    "deep JSON in an inspection": ("stop", "inspect", sends(SIZED % 2_000_000, b"[" * 1_000_000, b"]" * 1_000_000)),
    "a long number": ("image", "image", sends(SIZED % 10_000_000, b"9" * 10_000_000)),
    "a header line without an end": ("image", "image", floods(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536)),
    "headers without an end": ("image", "image", floods(b"HTTP/1.1 200 OK\r\n", b"X: x\r\n" * 4096)),
    "informational answers without an end": ("image", "image", floods(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2048)),
    "a chunk size without an end": ("image", "image", floods(CHUNKED, b"0" * 65536)),
    "a chunk size without an end in a log": ("follow", "logs", floods(CHUNKED, b"0" * 65536)),
    "chunks of one byte": ("image", "image", floods(CHUNKED, b"1\r\n[\r\n" * 8192)),
    "output without an end": ("run", "logs", floods(CHUNKED, chunk(frame(b"y" * 16000 + b"\n")))),
    "a frame of 4 GiB": ("run", "logs", floods(CHUNKED, HUGE_FRAME)),
    "a frame of 4 GiB in a log": ("follow", "logs", floods(CHUNKED, HUGE_FRAME)),
    "empty frames without an end": ("follow", "logs", floods(CHUNKED, chunk(b"\x01\0\0\0\0\0\0\0" * 4096))),
    "400 MiB in 400 KiB": ("image", "image", lambda call: [HEAD + b"Content-Encoding: gzip\r\n\r\n", compressed(400)]),
}
SILENCE: dict[str, tuple[str, str, Lie]] = {
    "no answer": ("image", "image", falls_silent()),
    "half a head": ("image", "image", falls_silent(b"HTTP/1.1 20")),
    "half a body": ("image", "image", falls_silent(SIZED % 100 + b'{"a')),
    "a body that is shorter than said": ("image", "image", sends(SIZED % 100, b'{"a')),
    "a size that is no number": ("image", "image", sends(HEAD + b"Content-Length: -5\r\n\r\n{}")),
    "a byte now and then": ("image", "image", floods(SIZED % 10**6, b" ", seconds_between=0.3)),
    "a byte of a head now and then": ("image", "image", floods(b"HTTP/1.1 200 OK\r\nX: ", b"x", seconds_between=0.3)),
    "a byte of output now and then": ("run", "logs", floods(CHUNKED, chunk(frame(b"y\n")), seconds_between=0.3)),
    "a container that never ends": ("run", "wait", falls_silent()),
    "half a survey": ("survey", "list", falls_silent(OPEN)),
    "a survey by the byte": ("survey", "version", floods(OPEN, b" ", seconds_between=0.3)),
}


# `make test` has one of each kind; the rest differ in where they meet the same limit.
IN_SHORT = (
    "an inspection of 300 MiB", "an answer without an end", "deep JSON", "a header line without an end",
    "a chunk size without an end in a log", "output without an end", "a frame of 4 GiB in a log", "400 MiB in 400 KiB",
    "no answer", "a byte now and then", "a container that never ends", "half a survey", "survey-output", "run-silence",
    "run-errors",
)  # fmt: skip


def cases(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, id=name, marks=() if name in IN_SHORT else pytest.mark.long) for name in names]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HostileSite]:
    made = HostileSite(tmp_path)
    made.add("liar").engine.lines = 1000
    yield made
    made.close()


def ask(site: HostileSite, question: str) -> dict[str, Any]:
    """Ask the host in a process of its own; that it ends at all is part of the test."""
    port = site.hosts["liar"].port
    words = [sys.executable, "-m", "tests.support.hostile_client", str(site.user_home), str(port), question]
    done = pace.run(
        words, env=site.env, capture_output=True, text=True, usual=MOST_SECONDS, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["ours"], found["error"]
    assert found["memory"] < MOST_MEMORY, found
    return found


def prepare(site: HostileSite, question: str, kind: str, lie: Lie) -> None:
    """Set the lie; where a log or a list is asked for, a container of the attempt has to be there."""
    engine = site.hosts["liar"].engine
    engine.lies[kind] = lie
    if question == "follow":
        name = "rung-store-job-1-1"
        summary = {"Names": [f"/{name}"], "State": "running", "Id": "x", "Labels": {}}
        running = {"State": {"Status": "running", "StartedAt": "2026-11-15T10:00:00Z"}, "Config": {"Labels": {}}}
        engine.lies.setdefault("list", says([summary]))
        engine.lies.setdefault("inspect", says(running))
    if kind == "pull":
        engine.lies["image"] = says({"message": "no such image"}, 404)


@pytest.mark.parametrize("case", cases([*FLOODS, *SILENCE]))
def test_no_answer_of_an_engine_costs_much(case: str, site: HostileSite) -> None:
    """0.1.0 took 948 MiB for the inspection, and quadratic time for a chunk size; deep JSON was a RecursionError."""
    question, kind, lie = (FLOODS | SILENCE)[case]
    prepare(site, question, kind, lie)
    ask(site, question)


COMMANDS: dict[str, Callable[[], Reply]] = {
    "output": lambda: Reply(endless(b"x" * 65536)),
    "lines": lambda: Reply(endless(b"time 5\n" * 9000)),
    "errors": lambda: Reply(err=endless(b"x" * 65536)),
    "silence": lambda: Reply(ends=False),
    "no exit code": lambda: Reply([b"x"], code=None),
}


@pytest.mark.parametrize("case", cases(f"{question}-{name}" for question in ("survey", "run") for name in COMMANDS))
def test_no_command_on_a_host_costs_much(case: str, site: HostileSite) -> None:
    question, _, name = case.partition("-")
    site.hosts["liar"].lies.command = lambda command: COMMANDS[name]()
    ask(site, question)


def endless_folder(host: HostileHost) -> None:
    host.lies.entries = lambda path: Endless(lambda number: entry(f"file-{number}"))
    host.engine.probe = lambda argv: Ran(b"".join(b"81a4 5 1700000000 ./file-%d\n" % n for n in range(100_000)))


def endless_depth(host: HostileHost) -> None:
    host.lies.entries = lambda path: [folder("inner"), folder("other")]
    host.engine.probe = lambda argv: Ran(b"41ed 4096 1700000000 ./" + b"inner/" * 100_000 + b"\n")


def slow_folder(host: HostileHost) -> None:
    host.lies.seconds = 1.0
    host.lies.entries = lambda path: Endless(lambda number: entry(f"file-{number}"))
    host.engine.probe = lambda argv: host.engine.over.wait(60) and None


@pytest.mark.parametrize("lie", [endless_folder, endless_depth, slow_folder])
def test_no_folder_on_a_host_costs_much(lie: Any, site: HostileSite) -> None:
    """0.1.0 listed a folder for as long as the host had more names."""
    lie(site.hosts["liar"])
    ask(site, "files")
