"""An engine that sends whatever a test wants, on a UNIX socket of this machine, and a Remote that reaches it."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

VERSION = b'{"Version": "27.1.1", "ApiVersion": "1.46", "MinAPIVersion": "1.24"}'
Reply = bytes | Callable[[socket.socket], None]


def answer(body: bytes, status: bytes = b"200 OK", *fields: bytes) -> bytes:
    """Return an honest answer with this body."""
    head = b"".join(field + b"\r\n" for field in fields)
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, head, len(body), body)


class LyingEngine(socketserver.ThreadingUnixStreamServer):
    """Answers by the path of a request, without its version; keeps the heads of all requests."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Handler)
        self.path = str(path)
        self.replies: dict[str, Reply] = {"/version": answer(VERSION)}
        self.heads: list[str] = []
        # How many bytes went out before the other side had enough.
        self.sent = 0

    # A Remote, as far as an engine needs one.

    name = "titan1"

    def open_socket(self, path: str) -> socket.socket:
        opened = socket.socket(socket.AF_UNIX)
        opened.connect(path)
        return opened

    def flood(self, first: bytes, then: bytes, most: int = 1 << 30) -> Callable[[socket.socket], None]:
        """Return a reply that goes on for ever, or as good as."""

        def reply(connection: socket.socket) -> None:
            connection.sendall(first)
            while self.sent < most:
                connection.sendall(then)
                self.sent += len(then)

        return reply


class _Handler(socketserver.StreamRequestHandler):
    server: LyingEngine

    def handle(self) -> None:
        lines = []
        while (line := self.rfile.readline()).strip():
            lines.append(line.decode())
        self.server.heads.append("".join(lines))
        path = lines[0].split()[1].partition("?")[0]
        known = self.server.replies
        reply: Any = next((known[key] for key in known if path.endswith(key)), answer(b"{}", b"404 Not Found"))
        with suppress(OSError):
            if callable(reply):
                reply(self.connection)
            else:
                self.wfile.write(reply)


@contextmanager
def lying_engine(folder: Path) -> Iterator[LyingEngine]:
    """Run such an engine while the test needs it."""
    server = LyingEngine(folder / "engine.sock")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
