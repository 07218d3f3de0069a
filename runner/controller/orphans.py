"""Stops orphans: attempts that were given up with their host. Their GPUs are free only after that."""

from __future__ import annotations

from functools import partial

from rung.jobs.model.errors import EngineError, HostError, RungError
from rung.jobs.model.event import EventKind
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.terminal_text import clean
from rung.runner.context import Context
from rung.runner.controller.side_trials import task_key
from rung.runner.seams.engine import Engine, Observation, Presence
from rung.runner.state import transitions
from rung.runner.state.store import Orphan
from rung.runner.task_pool import Task

# After an unexpected error.
ERROR_RETRY_SECONDS = 60.0
# Between two tries to reach a host, per attempt left there.
RETRY_SECONDS = 2.0
GONE = {
    Presence.ENDED: "it had ended by itself",
    Presence.LOST: "it did not outlive its host",
    Presence.ABSENT: "it had never started",
    Presence.REFUSED: "its site would never have started it",
}


def stop_orphan(engine: Engine, paths: AttemptPaths) -> tuple[Observation, bool]:
    """Stop an attempt that no longer counts; return its state after that, and whether it had to be stopped."""
    observation = engine.observe(paths)
    if observation.presence not in (Presence.RUNNING, Presence.ABSENT):
        return observation, False
    # One that is about to start finds the stop mark.
    engine.stop(paths, force=True)
    return engine.observe(paths), observation.presence is Presence.RUNNING


class OrphanSweep:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._stopped: set[str] = set()

    def turn(self) -> None:
        for orphan in self._context.store.orphans():
            key = f"stale {orphan.job_id} {orphan.attempt} {orphan.host}"
            beside = task_key(orphan.job_id, orphan.attempt)
            self._context.tasks.take(beside)
            if self._context.tasks.busy(beside):
                continue  # a trial that was given up while it was started, or asked
            task = self._context.tasks.take(key)
            if task is not None:
                self._context.back_off(key, RETRY_SECONDS)
                self._on_done(orphan, key, task)
            elif not self._context.tasks.busy(key) and not self._context.is_backing_off(key):
                self._submit(orphan, key)

    def _submit(self, orphan: Orphan, key: str) -> None:
        paths = self.paths_of(orphan)
        try:
            engine = self._context.engines.on(orphan.host)
        except RungError:
            self._context.back_off(key, RETRY_SECONDS)  # no longer in the list of hosts, or no list that can be read
        else:
            self._context.tasks.submit(key, orphan.host, partial(stop_orphan, engine, paths))

    def paths_of(self, orphan: Orphan) -> AttemptPaths:
        """Return the files of what was left on this host: of an attempt on several, those of its part there."""
        paths = self._context.paths.attempt(orphan.job_id, orphan.attempt)
        attempt = self._context.store.attempts(orphan.job_id)[orphan.attempt - 1]
        hosts = [place.host for place in attempt.places]
        return paths.of_node(hosts.index(orphan.host)) if attempt.members else paths

    def _on_done(self, orphan: Orphan, key: str, task: Task) -> None:
        error = task.future.exception()
        if error is not None:
            if not isinstance(error, (EngineError, HostError)):
                self._report_error(orphan, key, error)
            return
        observation, stopped = task.future.result()
        if stopped:
            self._stopped.add(key)
        if observation.presence in GONE:
            how = "it still ran and was stopped" if key in self._stopped else GONE[observation.presence]
            self._stopped.discard(key)
            transitions.orphan_gone(self._context.store, orphan, how, at=self._context.now())

    def _report_error(self, orphan: Orphan, key: str, error: BaseException) -> None:
        """Record an unexpected error; the GPUs stay leased, and it is tried again later."""
        self._context.back_off(key, ERROR_RETRY_SECONDS)
        message = clean(f"attempt {orphan.attempt} on {orphan.host}, which was given up, could not be ended: {error!r}")
        with self._context.store.transaction():
            self._context.store.add_event(
                orphan.job_id, orphan.attempt, EventKind.UNEXPECTED_ERROR, {"because": message}, at=self._context.now()
            )
