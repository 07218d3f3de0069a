"""Plays the Docker Engine of a host, honestly or with the lies that a test chooses.

A job's container is a thread that prints lines and leaves a record; a throw-away container runs its shell command with
the folders that it would see. A lie (hostile_lies.py) replaces the answer to one kind of request. A test may set the
lies at any time.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.hostile_lies import CHUNKED, Call, Lie, as_json, chunk, frame, moment

NAME = r"(?P<name>.+)"
# Which kind of request a line is.
ROUTES = [
    ("version", "GET", r"/version"),
    ("list", "GET", r"/containers/json"),
    ("create", "POST", r"/containers/create"),
    ("inspect", "GET", rf"/containers/{NAME}/json"),
    ("logs", "GET", rf"/containers/{NAME}/logs"),
    ("start", "POST", rf"/containers/{NAME}/start"),
    ("kill", "POST", rf"/containers/{NAME}/kill"),
    ("wait", "POST", rf"/containers/{NAME}/wait"),
    ("remove", "DELETE", rf"/containers/{NAME}"),
    ("pull", "POST", r"/images/create"),
    ("image", "GET", rf"/images/{NAME}/json"),
    ("distribution", "GET", rf"/distribution/{NAME}/json"),
    ("networks", "GET", r"/networks"),
    ("network", "POST", r"/networks/create"),
    ("no_network", "DELETE", rf"/networks/{NAME}"),
]
DIGEST = "sha256:" + "0" * 64
ENDED = ("exited", "dead")
NETWORKS: dict[str, tuple[int, Any]] = {
    "networks": (200, []),
    "network": (201, {"Id": "0" * 64}),
    "no_network": (204, None),
}
YES = ("1", "True", "true")


@dataclass
class Container:
    name: str
    config: Mapping[str, Any]
    status: str = "created"
    code: int = 0
    started: str = "0001-01-01T00:00:00Z"
    ended: str = "0001-01-01T00:00:00Z"
    ended_at: float = 0.0
    lines: list[tuple[int, int, bytes]] = field(default_factory=list)
    killed: bool = False

    @property
    def labels(self) -> Mapping[str, str]:
        return self.config.get("Labels") or {}

    def folder(self, target: str) -> Path | None:
        """Return the host's folder that is mounted at a place in the container."""
        mounts = self.config.get("HostConfig", {}).get("Mounts") or []
        return next((Path(each["Source"]) for each in mounts if each["Target"] == target), None)

    def on_host(self, word: str) -> str:
        """Return an argument with the host's own path in the place of the container's."""
        mounts = self.config.get("HostConfig", {}).get("Mounts") or []
        for each in sorted(mounts, key=lambda each: -len(each["Target"])):
            if word == each["Target"] or word.startswith(f"{each['Target']}/"):
                return str(each["Source"]) + word[len(each["Target"]) :]
        return word


@dataclass(frozen=True)
class Ran:
    """What a throw-away container prints, and its exit code."""

    out: bytes = b""
    code: int = 0
    err: bytes = b""


class HostileEngine:
    """The engine of one host. `lies` holds what it lies about, by the kind of request."""

    def __init__(self, lines: int = 20, seconds_between: float = 0.05) -> None:
        self.lines, self.seconds_between = lines, seconds_between
        self.lies: dict[str, Lie] = {}
        # What a throw-away container says, by its command; None: the truth.
        self.probe: Callable[[list[str]], Ran | None] = lambda argv: None
        self.calls: list[str] = []
        self.containers: dict[str, Container] = {}
        self.over = threading.Event()
        self._changed = threading.Condition()

    # Over the wire

    def serve(self, channel: Any) -> None:
        """Answer the requests on one connection until it is closed."""
        with channel, channel.makefile("rb") as reader:
            while (call := self._read(reader)) is not None:
                self.calls.append(call.kind)
                lie = self.lies.get(call.kind)
                pieces = lie(call) if lie else None
                for piece in pieces if pieces is not None else self._honest(call):
                    channel.sendall(piece)
                if not isinstance(pieces, list | None) or call.kind == "logs":
                    channel.shutdown_write()
                    return

    def _read(self, reader: Any) -> Call | None:
        first = reader.readline()
        if not first:
            return None
        method, target, _ = first.decode("latin-1").split(" ", 2)
        fields = {}
        while (line := reader.readline()) not in (b"\r\n", b"\n", b""):
            key, _, value = line.decode("latin-1").partition(":")
            fields[key.strip().lower()] = value.strip()
        body = reader.read(int(fields.get("content-length", 0)))
        split = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        path = re.sub(r"^/v[0-9.]+", "", split.path)
        for kind, verb, pattern in ROUTES:
            found = re.fullmatch(pattern, path) if re.fullmatch(verb, method) else None
            if found:
                name = found.groupdict().get("name") or query.get("name", "")
                return Call(kind, name, query, body, partial(self._value, kind, name, query, body), self.over)
        return Call("unknown", path, query, body, lambda: (404, {"message": "page not found"}), self.over)

    def _honest(self, call: Call) -> Iterable[bytes]:
        found = self.containers.get(call.name)
        if call.kind == "logs" and found is not None:
            return self._log(found, call.query)
        return [as_json(value, status) for status, value in [call.honest()]]

    def _log(self, found: Container, query: Mapping[str, str]) -> Iterator[bytes]:
        yield CHUNKED
        since, sent = float(query.get("since") or 0), 0
        wanted = (
            {1} if query.get("stderr") in ("0", "False") else {2} if query.get("stdout") in ("0", "False") else {1, 2}
        )
        while not self.over.is_set():
            with self._changed:
                ended, new = found.status in ENDED, found.lines[sent:]
                if not new and not ended and query.get("follow") in YES:
                    self._changed.wait(0.5)
            for at, kind, text in new:
                if at >= since * 10**9 - 1 and kind in wanted:
                    plain = bytes([kind, 0, 0, 0]) + len(text).to_bytes(4, "big") + text
                    yield chunk(frame(text, moment(at), kind) if query.get("timestamps") in YES else plain)
            sent += len(new)
            if not new and (ended or query.get("follow") not in YES):
                break
        yield b"0\r\n\r\n"

    # Values

    def _value(self, kind: str, name: str, query: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        if kind == "version":
            return 200, {"Version": "24.0.0", "ApiVersion": "1.43", "MinAPIVersion": "1.12", "Os": "linux"}
        if kind == "list":
            return 200, [self._summary(each) for each in list(self.containers.values())]
        if kind in ("image", "distribution", "pull"):
            labels = {"rung.cuda.archs": "sm_60 sm_75 sm_80 sm_90"}
            image = {"Id": DIGEST, "RepoDigests": [f"train@{DIGEST}"], "Config": {"Labels": labels}}
            return 200, image | {"Descriptor": {"digest": DIGEST}, "status": "done"}
        if kind in NETWORKS:
            return NETWORKS[kind]
        if kind == "create":
            if name in self.containers:
                return 409, {"message": "in use"}
            self.containers[name] = Container(name, json.loads(body))
            return 201, {"Id": self._id(name), "Warnings": []}
        found = self.containers.get(name)
        if found is None:
            return 404, {"message": f"No such container: {name}"}
        return getattr(self, f"_{kind}")(found)

    def _id(self, name: str) -> str:
        return name.encode().hex().ljust(64, "0")[:64]

    def _summary(self, each: Container) -> dict[str, Any]:
        facts = {"Id": self._id(each.name), "Names": [f"/{each.name}"], "State": each.status, "Created": 1_700_000_000}
        return facts | {"Labels": dict(each.labels), "Status": each.status}

    def _inspect(self, found: Container) -> tuple[int, Any]:
        state = {"Status": found.status, "ExitCode": found.code, "StartedAt": found.started, "FinishedAt": found.ended}
        state |= {"OOMKilled": False, "Running": found.status == "running", "Error": ""}
        config = {"Labels": dict(found.labels), "Image": found.config.get("Image"), "Tty": False}
        facts = {"Id": self._id(found.name), "Name": f"/{found.name}", "Created": "2026-11-15T10:00:00Z"}
        return 200, facts | {"State": state, "Config": config}

    def _start(self, found: Container) -> tuple[int, Any]:
        if found.status == "created":
            found.status, found.started = "running", moment(time.time_ns())
            play = self._run_job if "rung.job" in found.labels else self._run_probe
            threading.Thread(target=play, args=(found,), daemon=True).start()
        return 204, None

    def _kill(self, found: Container) -> tuple[int, Any]:
        found.killed = True
        self._end(found, 143)
        return 204, None

    def _wait(self, found: Container) -> tuple[int, Any]:
        with self._changed:
            while found.status not in ENDED and not self.over.is_set():
                self._changed.wait(0.5)
        return 200, {"StatusCode": found.code, "Error": None}

    def _remove(self, found: Container) -> tuple[int, Any]:
        found.killed = True
        self.containers.pop(found.name, None)
        return 204, None

    # What runs in containers

    def _say(self, found: Container, text: bytes, kind: int = 1) -> None:
        with self._changed:
            found.lines += [(time.time_ns(), kind, line) for line in text.splitlines(keepends=True)]
            self._changed.notify_all()

    def _end(self, found: Container, code: int) -> None:
        with self._changed:
            if found.status not in ENDED:
                found.status, found.code, found.ended = "exited", code, moment(time.time_ns())
                found.ended_at = time.time()
            self._changed.notify_all()

    def _run_job(self, found: Container) -> None:
        record = found.folder("/rung/record")
        if record:
            (record / "began").touch()
        for number in range(1, self.lines + 1):
            self._say(found, f"step {number} loss {2 / number:.4f}\n".encode())
            if self.over.wait(self.seconds_between) or found.killed:
                return
        if record:
            done = record / "done.json"
            done.write_text(json.dumps({"exit_code": 0, "ended_at": int(time.time())}))
        self._end(found, 0)

    def _run_probe(self, found: Container) -> None:
        argv = [*(found.config.get("Entrypoint") or []), *(found.config.get("Cmd") or [])]
        ran = self.probe(argv)
        if ran is None and Path(argv[0]).name == "sh":
            words = [found.on_host(word) for word in argv]
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, cwd="/")
            ran = Ran(done.stdout, done.returncode, done.stderr)
        ran = ran or Ran(err=b"no such program\n", code=127)
        self._say(found, ran.out)
        self._say(found, ran.err, kind=2)
        self._end(found, ran.code)
