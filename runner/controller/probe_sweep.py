"""Removes temporary containers that were left on the hosts: after a cut, or by a controller that was killed."""

from __future__ import annotations

from rung.jobs.model.errors import RungError
from rung.jobs.model.host import Host
from rung.runner.context import Context

# Between two sweeps of a host. The first one comes with the first turn.
SWEEP_SECONDS = 60.0


class ProbeSweep:
    """Sweeps every host of the list from time to time, in the task pool; a host that does not answer comes later."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # Whether any job ever ran on a host; without one, no host is asked.
        self._has_remote_jobs = False

    def turn(self) -> None:
        for host in self._hosts():
            key = f"sweep {host.name}"
            # The result does not matter, nor does an error: the next sweep tries again.
            self._context.tasks.take(key)
            if not self._context.tasks.busy(key) and not self._context.is_backing_off(key):
                self._context.back_off(key, SWEEP_SECONDS)
                self._submit(key, host)

    def _hosts(self) -> list[Host]:
        if not self._has_remote_jobs and not self._context.is_backing_off("sweep"):
            self._context.back_off("sweep", SWEEP_SECONDS)
            self._has_remote_jobs = any(job.spec.is_remote for job in self._context.store.jobs())
        try:
            return list(self._context.engines.hosts) if self._has_remote_jobs else []
        except RungError:
            return []  # no list that can be read; the jobs show that

    def _submit(self, key: str, host: Host) -> None:
        try:
            engine = self._context.engines.on(host.name)
        except RungError:
            return
        self._context.tasks.submit(key, host.name, engine.sweep)
