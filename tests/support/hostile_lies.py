"""The lies of an engine, and the form of its answers on the wire.

A lie is a function from a request to the bytes of the whole answer: JSON of any shape, any bytes, an endless stream,
silence.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Call:
    """One request to the engine, and its honest answer."""

    kind: str
    name: str
    query: Mapping[str, str]
    body: bytes
    honest: Callable[[], tuple[int, Any]]
    # Set when the host is closed: a silent answer ends then.
    over: threading.Event


# Returns the bytes of the whole answer, head included; None for the honest answer. After a list the connection stays
# open for the next request; after anything else it is closed.
Lie = Callable[[Call], Iterable[bytes] | None]


# Lies


def says(value: object, status: int = 200) -> Lie:
    """Answer with this value."""
    return lambda call: [as_json(value, status)]


def edits(change: Callable[[Any], Any]) -> Lie:
    """Answer with the honest value after a change."""

    def answer(call: Call) -> Iterable[bytes]:
        status, value = call.honest()
        return [as_json(change(value) if status == 200 else value, status)]

    return answer


def sends(*pieces: bytes) -> Lie:
    """Send these bytes and close."""
    return lambda call: pieces


def floods(head: bytes, piece: bytes, seconds_between: float = 0.0) -> Lie:
    """Send a head and then one piece again and again, for ever."""

    def answer(call: Call) -> Iterator[bytes]:
        yield head
        while not call.over.is_set():
            yield piece
            if seconds_between:
                call.over.wait(seconds_between)

    return answer


def falls_silent(after: bytes = b"") -> Lie:
    """Send some bytes, and nothing more."""

    def answer(call: Call) -> Iterator[bytes]:
        yield after
        call.over.wait()

    return answer


def in_turn(*lies: Lie | None) -> Lie:
    """Answer each call with the next lie; the last one stays. None is the truth."""
    left = list(lies)

    def answer(call: Call) -> Iterable[bytes] | None:
        lie = left.pop(0) if len(left) > 1 else left[0]
        return lie(call) if lie else None

    return answer


def as_json(value: object, status: int = 200) -> bytes:
    body = b"" if value is None and status == 204 else json.dumps(value).encode()
    head = f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def frame(text: bytes, at: str = "", kind: int = 1) -> bytes:
    """Return a line of a log as the engine sends it."""
    line = f"{at or moment(time.time_ns())} ".encode() + text
    return bytes([kind, 0, 0, 0]) + len(line).to_bytes(4, "big") + line


def moment(nanoseconds: int) -> str:
    whole = datetime.fromtimestamp(nanoseconds // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{nanoseconds % 10**9:09d}Z"
