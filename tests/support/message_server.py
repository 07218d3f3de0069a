"""A service on the loopback that takes messages, as Apprise's json:// posts them, and misbehaves as a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

# Stands in every URL; nothing but notify.yaml may have it.
TOKEN = "s3cret-t0ken-of-the-lab"

# What a service does with a request: it returns the status to answer with.
Behaviour = Callable[[], int]


class MessageServer:
    """Keeps every message that arrives, and those that it accepted, each as its two lines.

    `behaviours` are for the first requests; later ones are accepted. `behave` decides about all of them.
    """

    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.behave: Behaviour | None = None
        self.titles: list[str] = []
        self.bodies: list[str] = []
        self.behaviours: list[Behaviour] = []
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                title, body = str(said["title"]), str(said["message"])
                status = server.take(title, body)
                if status == 200:
                    server.accepted.append(f"{title}\n{body}")
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *words: Any) -> None:
                pass

        # It has a port and does not listen yet: connections are refused.
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._server.daemon_threads = True
        self._server.server_bind()
        self.port = int(self._server.server_address[1])

    def take(self, title: str, body: str) -> int:
        with self._lock:
            self.titles.append(title)
            self.bodies.append(body)
            behave = self.behaviours.pop(0) if self.behaviours else self.behave or (lambda: 200)
        return behave()

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.port}/{TOKEN}"

    @contextmanager
    def serving(self) -> Iterator[MessageServer]:
        self._server.server_activate()
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def status(code: int) -> Behaviour:
    return lambda: code


def write_settings(home: Path, targets: Mapping[str, str], **fields: Any) -> Path:
    """Write notify.yaml as a person should: readable by nobody else."""
    home.mkdir(mode=0o700, exist_ok=True)
    file = home / "notify.yaml"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump({"targets": dict(targets), **fields}), encoding="utf-8")
    return file
