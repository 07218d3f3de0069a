"""Asks the hosts in the background, so that no page waits for one that does not answer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rung.jobs.model.errors import RungError
from rung.runner.hosts.health import health_command
from rung.runner.hosts.survey import Report
from rung.runner.hosts.this_machine import survey_here
from rung.runner.session.session import survey_hosts
from rung.runner.state.store import Lease
from rung.runner.views.hosts_table import hosts_json

# A survey opens a connection to every host; a person who looks again and again gets the last one for so long.
FRESH_SECONDS = 30.0


def ask_all() -> list[Report]:
    """Return a report of this machine and of every host of the list."""
    return [survey_here(os.environ), *survey_hosts(health_command(quick=True))]


@dataclass(frozen=True)
class Surveyed:
    """What is known of the hosts now."""

    hosts: Sequence[dict[str, Any]] = ()
    at: float | None = None
    asking: bool = False
    error: str = ""


@dataclass
class HostSurvey:
    """The newest survey, and the thread that makes the next one."""

    ask: Callable[[], Sequence[Report]] = ask_all
    _last: Surveyed = field(default_factory=Surveyed)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> Surveyed:
        """Return the last survey, and begin a new one if it is old."""
        with self._lock:
            old = self._last.at is None or time.time() - self._last.at > FRESH_SECONDS
            if old and not self._last.asking:
                self._last = Surveyed(self._last.hosts, self._last.at, asking=True)
                threading.Thread(target=self._survey, name="host survey", daemon=True).start()
            return self._last

    def _survey(self) -> None:
        hosts, error = self._last.hosts, ""
        try:
            hosts = hosts_json(self.ask())
        except (RungError, OSError) as problem:
            error = str(problem)
        with self._lock:
            self._last = Surveyed(hosts, time.time(), error=error)


def with_leases(hosts: Sequence[dict[str, Any]], leases: Sequence[Lease]) -> list[dict[str, Any]]:
    """Return the hosts with the jobs that have leased their GPUs, also where these do not compute just now."""
    owners = {(lease.host, lease.gpu): lease.job_id for lease in leases}
    return [
        {**host, "gpus": [{**gpu, "lease": owners.get((host["name"], gpu["uuid"]))} for gpu in host["gpus"]]}
        for host in hosts
    ]
