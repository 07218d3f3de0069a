"""An engine and a Completion in one, with the answers that a test sets; nothing of it leaves the process."""

from __future__ import annotations

import socket
from typing import Any

from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.container_state import Record, outcome
from rung.runner.engines.on_host.done_record import write_done

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def line(number: int, kind: int = 1) -> bytes:
    """Return one chunk of a log stream with one line."""
    text = f"2026-11-15T10:00:{number % 60:02d}.{number // 60:09d}Z line {number}\n".encode()
    framed = bytes([kind, 0, 0, 0]) + len(text).to_bytes(4, "big") + text
    return b"%x\r\n%s\r\n" % (len(framed), framed)


class Stream:
    """A connection on which the engine has sent some bytes."""

    def __init__(self, data: bytes) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._theirs.sendall(data)
        self.closed = False

    def recv(self, size: int) -> bytes:
        try:
            return self._ours.recv(size)
        except BlockingIOError:
            raise TimeoutError from None

    def settimeout(self, seconds: float | None) -> None:
        self._ours.settimeout(seconds)

    def fileno(self) -> int:
        return self._ours.fileno()

    def send(self, data: bytes) -> None:
        self._theirs.sendall(data)

    def break_off(self) -> None:
        self._theirs.close()

    def close(self) -> None:
        self.closed = True
        self._ours.close()
        self._theirs.close()


class ScriptedEngine:
    """Has any number of containers: the state of each, its logs in the order they are asked for, its record."""

    host, store_id = "turing", "s"

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}
        self.logs: dict[str, list[bytes]] = {}
        # By the number of the attempt; an exception is raised.
        self.records: dict[int, Record | Exception] = {}
        self.streams: dict[str, list[Stream]] = {}
        self.asked: list[int] = []
        self.api = self

    def negotiate_version(self) -> None: ...

    def inspect(self, name: str) -> Any:
        state = self.states.get(name)
        if isinstance(state, Exception):
            raise state
        return None if state is None else {"State": state}

    def containers(self, labels: dict[str, str]) -> list[dict[str, Any]]:
        known = {name: state for name, state in self.states.items() if isinstance(state, dict)}
        return [{"Names": [f"/{name}"], "State": state["Status"]} for name, state in known.items()]

    def open_log(self, name: str, since: str | None, *, follow: bool) -> Stream:
        waiting = self.logs.get(name) or [HEAD]
        stream = Stream(waiting.pop(0) if len(waiting) > 1 else waiting[0])
        self.streams.setdefault(name, []).append(stream)
        return stream

    def read_record(self, paths: AttemptPaths) -> Record:
        self.asked.append(paths.number)
        record = self.records.get(paths.number, Record(began=True))
        if isinstance(record, Exception):
            raise record
        return record

    def remove_network(self, name: str) -> None: ...

    def finalize(self, name: str, paths: AttemptPaths, state: Any) -> Any:
        end = outcome(state, self.read_record(paths))
        self.states.pop(name, None)
        write_done(paths, end)
        return end
