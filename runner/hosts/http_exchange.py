"""Sends one HTTP request to an engine and reads its answer, limited in bytes and time.

The other side may send anything: no length that it names is believed, and nothing it sends is kept beyond a limit.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rung.jobs.model.errors import EngineError
from rung.runner.seams.remote import RemoteSocket

READ_BYTES = 1 << 16
MAX_HEAD = 1 << 16
# A chunk's size in hexadecimal; an engine adds no extension to it.
CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,16}")
MAX_CHUNK_LINE = 64
# One line of an answer that is a stream of JSON objects, such as the progress of a pull.
MAX_LINE = 1 << 16
NOT_HTTP = "the answer is not from an engine"


class AnswerDamaged(EngineError):
    """The answer is not what an engine sends, or too much of it."""


class Body:
    """Extracts the body from the bytes of an HTTP answer, chunked or not, as they arrive."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._chunked = False
        # Bytes left of the present chunk, or of a body whose length is known; None: not known.
        self._left: int | None = None
        self.status: int | None = None
        # True when the engine has marked the end of the body.
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        # What was searched before is not searched again.
        searched = max(0, len(self._raw) - 3)
        self._raw += data
        if self.status is None and not self._head(searched):
            return b""
        return b"".join(self._chunks()) if self._chunked else self._plain()

    def close(self) -> None:
        """Handle the end of the connection, which ends a body without chunks and length."""
        self.ended = self.ended or (self.status is not None and not self._chunked and self._left is None)

    def _head(self, searched: int) -> bool:
        end = self._raw.find(b"\r\n\r\n", searched)
        if end < 0 and len(self._raw) <= MAX_HEAD:
            return False
        head = bytes(self._raw[: end + 2])
        found = re.match(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r]", head)
        if found is None or not 0 <= end <= MAX_HEAD:
            raise AnswerDamaged(NOT_HTTP)
        del self._raw[: end + 4]
        self.status, fields = int(found[1]), _fields(head)
        self._chunked = fields.get(b"transfer-encoding") == b"chunked"
        length = fields.get(b"content-length")
        if not self._chunked and length is not None:
            if not re.fullmatch(rb"[0-9]{1,18}", length):
                raise AnswerDamaged(NOT_HTTP)
            self._left = int(length)
        # An answer without a body has neither chunks nor a length.
        self.ended = self._left == 0 or self.status in (204, 304)
        return True

    def _plain(self) -> bytes:
        body, self._raw = bytes(self._raw), bytearray()
        if self._left is not None:
            body = body[: self._left]
            self._left -= len(body)
            self.ended = self._left == 0
        return body

    def _chunks(self) -> Iterator[bytes]:
        while not self.ended:
            if self._left is None and not self._next_size():
                return
            # Passed on before the chunk is complete, so that a large one is not buffered.
            if self._left:
                taken = bytes(self._raw[: self._left])
                del self._raw[: len(taken)]
                self._left -= len(taken)
                yield taken
            if self._left or len(self._raw) < 2:
                return
            if not self._raw.startswith(b"\r\n"):
                raise AnswerDamaged(NOT_HTTP)
            del self._raw[:2]
            self._left = None

    def _next_size(self) -> bool:
        """Read the size of the next chunk; False if its line is not complete, or if it was the last chunk."""
        end = self._raw.find(b"\r\n", 0, MAX_CHUNK_LINE)
        if end < 0 and len(self._raw) < MAX_CHUNK_LINE:
            return False
        found = CHUNK_SIZE.match(self._raw)
        if found is None or found.end() != end:
            raise AnswerDamaged(NOT_HTTP)
        self._left = int(found[0], 16)
        del self._raw[: end + 2]
        self.ended = self._left == 0
        return not self.ended


def _fields(head: bytes) -> dict[bytes, bytes]:
    """Return the fields of a head, in lower case."""
    pairs = (line.lower().partition(b":") for line in head.split(b"\r\n")[1:])
    return {name.strip(): value.strip() for name, _, value in pairs}


@dataclass(frozen=True)
class Limits:
    """How much of an answer is read, how long, and how long the other side may be silent."""

    size: int
    seconds: float
    silence: float
    now: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes


def send_request(
    socket: RemoteSocket, request: str, headers: Mapping[str, str], chunks: Iterable[bytes] | None = None
) -> None:
    """Send a request; `chunks` is a body whose length is not known beforehand."""
    fields = {"Host": "engine", "Connection": "close", "Accept-Encoding": "identity", **headers}
    if chunks is not None:
        fields["Transfer-Encoding"] = "chunked"
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    socket.sendall(f"{request} HTTP/1.1\r\n{head}\r\n".encode("ascii"))
    if chunks is None:
        return
    for chunk in filter(None, chunks):
        socket.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    socket.sendall(b"0\r\n\r\n")


def body_pieces(socket: RemoteSocket, body: Body, limits: Limits) -> Iterator[bytes]:
    """Yield the body of an answer as it arrives; an OSError when that takes too long or breaks off."""
    deadline, left = limits.now() + limits.seconds, limits.size
    while not body.ended:
        remaining = min(limits.silence, deadline - limits.now())
        if remaining <= 0:
            raise TimeoutError(f"no complete answer in {limits.seconds:g} s")
        socket.settimeout(remaining)
        data = socket.recv(READ_BYTES)
        left -= len(data)
        if left < 0:
            raise AnswerDamaged(f"the answer is longer than {limits.size} bytes")
        if data:
            yield body.feed(data)
        else:
            body.close()
            if not body.ended:
                raise ConnectionResetError("it broke off its answer")


def read_answer(socket: RemoteSocket, limits: Limits) -> Answer:
    """Return the whole answer."""
    body = Body()
    whole = b"".join(body_pieces(socket, body, limits))
    assert body.status is not None, "a body ends after its head"
    return Answer(body.status, whole)


def json_lines(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a stream that has one of them in each line."""
    held = bytearray()
    for piece in pieces:
        searched = len(held)
        held += piece
        while (end := held.find(b"\n", searched)) >= 0:
            line = bytes(held[:end]).strip()
            del held[: end + 1]
            searched = 0
            if line:
                yield as_object(parse_json(line))
        if len(held) > MAX_LINE:
            raise AnswerDamaged(f"a line of the answer is longer than {MAX_LINE} bytes")
    if last := bytes(held).strip():
        yield as_object(parse_json(last))


def parse_json(text: bytes) -> Any:
    """Parse what an engine sends as JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise AnswerDamaged("the answer is not JSON as an engine sends it") from None


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON value that must be an object."""
    if not isinstance(value, dict):
        raise AnswerDamaged("the answer is not a JSON object")
    return value


def as_objects(value: Any) -> list[dict[str, Any]]:
    """Return a JSON value that must be a list of objects."""
    if not isinstance(value, list):
        raise AnswerDamaged("the answer is not a JSON list")
    return [as_object(each) for each in value]
