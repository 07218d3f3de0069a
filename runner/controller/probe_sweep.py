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
        # Whether any job ever ran on a host; without one, no host is asked. None: the store was not asked yet.
        self._has_remote_jobs: bool | None = None

    def turn(self, *, is_host_wanted: bool) -> None:
        """Sweep the hosts that are due; `is_host_wanted`: a job waits for a host, and may run there from now on."""
        for host in self._hosts(is_host_wanted=is_host_wanted):
            key = f"sweep {host.name}"
            # The result does not matter, nor does an error: the next sweep tries again.
            self._context.tasks.take(key)
            if not self._context.tasks.busy(key) and not self._context.is_backing_off(key):
                self._context.back_off(key, SWEEP_SECONDS)
                self._submit(key, host)

    def _hosts(self, *, is_host_wanted: bool) -> list[Host]:
        if self._has_remote_jobs is None:
            self._has_remote_jobs = self._context.store.has_remote_jobs()
        # What came since is seen as it waits. To read all jobs again took memory with each one that had ended.
        self._has_remote_jobs = self._has_remote_jobs or is_host_wanted
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
