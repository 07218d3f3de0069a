"""Runs short commands in temporary containers on a host: read-only, without network."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.api import EngineApi
from rung.runner.engines.docker.container_config import HostLayout, probe_config
from rung.runner.engines.docker.host_account import HostAccount
from rung.runner.seams.engine import Container, Request
from rung.runner.seams.remote import OUTPUT_BYTES

# Importing torch for the first time reads a gigabyte from a cold disk.
IMAGE_SECONDS = 300.0
NOT_FOUND = 127  # the exit code of a shell for a missing program


class Probe:
    """Runs temporary containers on one host."""

    def __init__(self, api: EngineApi, account: HostAccount) -> None:
        self._api, self._account = api, account

    def in_attempt(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        """Run a command that sees the files of this job: exit code, output, errors."""
        layout = self._account.layout()
        residence = request.container.residence if request.container else 1
        self._account.script('umask 077; mkdir -p "$1"', layout.paths.job(request.job_id, residence))
        return self.run(probe_config(request, layout, tuple(argv)), timeout)

    def in_image(self, image: str, argv: tuple[str, ...]) -> tuple[int, str]:
        """Run a command in an image that belongs to no attempt: exit code and output."""
        nowhere = Path("/")
        env = {"HOME": "/tmp"}  # noqa: S108
        request = Request("look", 0, argv, nowhere, env, AttemptPaths(nowhere), nowhere, container=Container(image))
        config = probe_config(request, HostLayout(self._account.user(), self._account.store_id, ""), argv)
        config["HostConfig"]["Mounts"] = []
        try:
            code, output, _ = self.run(config, IMAGE_SECONDS)
        except EngineError:
            # The engine refuses to start a program that the image does not have.
            return NOT_FOUND, ""
        return code, output

    def run(self, config: Mapping[str, Any], timeout: float, size: int = OUTPUT_BYTES) -> tuple[int, str, str]:
        """Run a throw-away container: exit code, and the beginning of its output and its errors."""
        name = f"rung-{self._account.store_id}-look-{secrets.token_hex(6)}"
        try:
            self._api.create(name, config)
            self._api.start(name)
            code = self._api.wait(name, timeout)
            output, errors = (self._api.output(name, errors=which, size=size) for which in (False, True))
        finally:
            self._api.remove(name)
        return code, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")
