"""Runs short commands in temporary containers on a host: read-only, without network.

Each carries its owner (the process that made it), its time limit and when it was made. One that is given up is killed
at once. What could not be removed then, because the host was away or the process was killed, is left to the sweep.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rung.jobs.model.errors import EngineError, HostError, HostUnreachable, RunCutShort
from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.api import EngineApi
from rung.runner.engines.docker.container_config import PROBE_LABEL, STORE_LABEL, probe_config
from rung.runner.engines.docker.container_state import parse_inspect
from rung.runner.engines.on_host.host_account import HostAccount
from rung.runner.engines.on_host.layout import HostLayout
from rung.runner.engines.on_host.owner import is_gone, this_process
from rung.runner.seams.engine import Container, Request
from rung.runner.seams.remote import OUTPUT_BYTES

OWNER_LABEL, LIMIT_LABEL, MADE_LABEL = "rung.look.owner", "rung.look.seconds", "rung.look.made"
# Importing torch for the first time reads a gigabyte from a cold disk.
IMAGE_SECONDS = 300.0
# The limit of a container that names none: a version before the labels made it.
UNKNOWN_LIMIT_SECONDS = 1000.0
# Above a container's own limit, before another process takes it away.
SLACK_SECONDS = 60.0
# The waits before a broken connection is tried again while a container runs.
RECONNECT_SECONDS = (0.5, 2.0, 5.0, 10.0)
NOT_FOUND = 127  # the exit code of a shell for a missing program
NO_PROGRAM = re.compile(r"executable file not found|exec: .*no such file or directory", re.IGNORECASE)

# The exit code of a program that was killed, such as for memory.
KILLED = 128 + 9
# How long the end of the program waits for that.
CLOSE_SECONDS = 5.0

# The names of the containers that this process uses now, on any host, and who does.
_IN_USE: dict[str, Probe] = {}


class Probe:
    """Runs temporary containers on one host."""

    def __init__(self, api: EngineApi, account: HostAccount, now: Callable[[], float] = time.monotonic) -> None:
        self._api, self._account, self._now = api, account, now
        # When the sweep first saw a container of another process that may be alive.
        self._first_seen: dict[str, float] = {}

    def in_attempt(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        """Run a command that sees the files of this job: exit code, output, errors."""
        layout = self._account.layout()
        residence = request.container.residence if request.container else 1
        self._account.script('umask 077; mkdir -p "$1"', layout.paths.job(request.job_id, residence))
        try:
            return self.run(probe_config(request, layout, tuple(argv)), timeout)
        except EngineError as error:
            return _without_program(error), "", str(error)

    def in_image(self, image: str, argv: tuple[str, ...]) -> tuple[int, str]:
        """Run a command in an image that belongs to no attempt: exit code and output."""
        nowhere = Path("/")
        env = {"HOME": "/tmp"}  # noqa: S108
        request = Request("look", 0, argv, nowhere, env, AttemptPaths(nowhere), nowhere, container=Container(image))
        config = probe_config(request, HostLayout(self._account.user(), self._account.store_id, ""), argv)
        config["HostConfig"]["Mounts"] = []
        try:
            code, output, _ = self.run(config, IMAGE_SECONDS)
        except EngineError as error:
            return _without_program(error), ""
        return code, output

    def run(self, config: Mapping[str, Any], timeout: float, size: int = OUTPUT_BYTES) -> tuple[int, str, str]:
        """Run a throw-away container: exit code, and the beginning of its output and its errors."""
        name = f"rung-{self._account.store_id}-look-{secrets.token_hex(6)}"
        _IN_USE[name] = self
        try:
            self._api.create(name, {**config, "Labels": {**config["Labels"], **_labels(timeout)}})
            self._api.start(name)
            answer = self._result(name, timeout, size)
        except BaseException:
            self._remove(name)
            raise
        # It has ended, and a relaunch goes on with its answer: nobody waits until it is gone.
        threading.Thread(target=self._remove, args=(name,), daemon=True).start()
        return answer

    def _result(self, name: str, timeout: float, size: int) -> tuple[int, str, str]:
        """Return how a container ended. It runs on while the connection is broken, so it is asked again for a while."""
        deadline = self._now() + timeout
        waits = iter(RECONNECT_SECONDS)
        disturbed = False
        while True:
            try:
                code = self._api.wait(name, max(1.0, deadline - self._now()))
                texts = [self._api.output(name, errors=errors, size=size) for errors in (False, True)]
                break
            except HostUnreachable:
                disturbed, wait = True, next(waits, None)
                if wait is None:
                    raise
                time.sleep(wait)
        if disturbed and code != 0:
            # The host or its engine may have ended it with the connection: that says nothing about the command.
            raise HostUnreachable(f"{self._api.host}: it was out of reach during a check, which ended with {code}")
        output, errors = (text.decode("utf-8", "replace") for text in texts)
        if code == KILLED and parse_inspect(self._api.inspect(name)).out_of_memory:
            error = RunCutShort(f"{self._api.host}: a check ran out of memory: ask for more in resources.memory")
            error.output = output
            raise error
        return code, output, errors

    def close(self) -> None:
        """Remove what this process still uses; a host that does not answer now is left to the sweep."""
        names = [name for name, user in list(_IN_USE.items()) if user is self]
        if names:
            removing = threading.Thread(target=self._remove, args=names, daemon=True)
            removing.start()
            removing.join(CLOSE_SECONDS)

    def _remove(self, *names: str) -> None:
        """Remove containers; one that still runs is killed. What this cannot remove is left to the sweep."""
        for name in names:
            with contextlib.suppress(EngineError, HostError):
                self._api.remove(name)
            _IN_USE.pop(name, None)

    # Leftovers

    def sweep(self) -> int:
        """Remove the temporary containers of this store that nobody uses any more; return how many there were."""
        ours = re.compile(rf"rung-{re.escape(self._account.store_id)}-look-[0-9a-f]{{12}}")
        listed = self._api.containers({STORE_LABEL: self._account.store_id})
        probes = {name: labels for name, labels in _labelled(listed) if PROBE_LABEL in labels and ours.fullmatch(name)}
        self._first_seen = {name: at for name, at in self._first_seen.items() if name in probes}
        left = [name for name, labels in probes.items() if self._is_left(name, labels)]
        for name in left:
            self._api.remove(name)
        return len(left)

    def _is_left(self, name: str, labels: Mapping[str, str]) -> bool:
        if name in _IN_USE:
            return False
        owner = str(labels.get(OWNER_LABEL, ""))
        if owner == this_process() or (owner and is_gone(owner)):
            return True
        # Perhaps a command beside us uses it: its own limit protects it, counted from when we first saw it.
        limit = str(labels.get(LIMIT_LABEL, ""))
        seconds = float(limit) if limit.isdecimal() and len(limit) < 6 else UNKNOWN_LIMIT_SECONDS
        return self._now() - self._first_seen.setdefault(name, self._now()) > seconds + SLACK_SECONDS


def _labelled(listed: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the containers in an engine's list by their names, with their labels."""
    for each in listed:
        names, labels = each.get("Names"), each.get("Labels")
        if isinstance(names, list) and isinstance(labels, dict):
            yield from ((name.lstrip("/"), labels) for name in names if isinstance(name, str))


def _without_program(error: EngineError) -> int:
    """Return a shell's exit code for a missing program. The engine refuses to start one; that is an answer."""
    if not NO_PROGRAM.search(str(error)):
        raise error
    return NOT_FOUND


def _labels(timeout: float) -> dict[str, str]:
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return {OWNER_LABEL: this_process(), LIMIT_LABEL: str(int(timeout)), MADE_LABEL: made}
