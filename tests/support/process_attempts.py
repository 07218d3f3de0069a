"""Runs attempts with the process engine, for the tests of that engine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.process import ProcessEngine
from rung.runner.files.log_file import LogFile
from rung.runner.seams.engine import Observation, Presence, Request

Wait = Callable[..., Any]
ENV = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"}


class Attempts:
    """Makes requests in one folder, and ends what a test leaves running."""

    def __init__(self, folder: Path, wait: Wait, job_folder: Path | None = None) -> None:
        self.folder, self.wait, self.engine = folder, wait, ProcessEngine()
        self.job_folder = job_folder or folder
        self.made: list[Request] = []

    def paths(self, number: int) -> AttemptPaths:
        return AttemptPaths(self.job_folder / "attempts" / str(number))

    def request(self, *argv: str, **more: Any) -> Request:
        number = len(self.made) + 1
        paths = self.paths(number)
        request = Request("a-1", number, argv, self.folder, ENV, paths, self.folder / "checkpoints", **more)
        self.made.append(request)
        return request

    def start(self, *argv: str, **more: Any) -> Request:
        request = self.request(*argv, **more)
        self.engine.start(request, {})
        return request

    def sh(self, script: str, **more: Any) -> Request:
        return self.start("sh", "-c", script, **more)

    def python(self, script: str, **more: Any) -> Request:
        return self.start(sys.executable, "-c", script, **more)

    def end(self, request: Request) -> Observation:
        self.wait(lambda: self.engine.observe(request.paths).presence in (Presence.ENDED, Presence.LOST))
        return self.engine.observe(request.paths)

    def log(self, request: Request) -> str:
        return LogFile(request.paths.log).read(1 << 20).decode()

    def wait_for_log(self, request: Request, text: str) -> None:
        self.wait(lambda: text in self.log(request))

    def claim(self, request: Request) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(request.paths.claim.read_bytes())
        return found


def gone(pid: int) -> bool:
    """Return whether a process has ended; a zombie counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
