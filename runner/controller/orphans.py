"""Owns ending what was given up: an attempt of a lost host is stopped when it is back, before its GPU is free."""

from __future__ import annotations

from functools import partial

from rung.jobs.model.errors import EngineError, HostError, RungError
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.terminal_text import clean
from rung.runner.context import Context
from rung.runner.seams.engine import Engine, Observation, Presence
from rung.runner.state import transitions
from rung.runner.state.store import Stale
from rung.runner.task_pool import Task

# After an error that nobody foresaw.
LONG_REST_SECONDS = 60.0
# How often a host that is away is asked again, per attempt left there.
REST_SECONDS = 2.0
GONE = {
    Presence.ENDED: "it had ended by itself",
    Presence.LOST: "it did not outlive its host",
    Presence.ABSENT: "it had never started",
}


def end(engine: Engine, paths: AttemptPaths) -> tuple[Observation, bool]:
    """End an attempt that no longer counts; return what is there now, and whether something had to be ended."""
    seen = engine.observe(paths)
    if seen.presence is not Presence.RUNNING:
        return seen, False
    engine.stop(paths, force=True)
    return engine.observe(paths), True


class Sweep:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._stopped: set[str] = set()

    def turn(self) -> None:
        for stale in self._context.store.stale():
            key = f"stale {stale.job_id} {stale.attempt}"
            errand = self._context.tasks.take(key)
            if errand is not None:
                self._context.rest(key, REST_SECONDS)
                self._take(stale, key, errand)
            elif not self._context.tasks.busy(key) and not self._context.rests(key):
                self._send(stale, key)

    def _send(self, stale: Stale, key: str) -> None:
        paths = self._context.paths.attempt(stale.job_id, stale.attempt)
        try:
            engine = self._context.engines.on(stale.host)
        except RungError:
            self._context.rest(key, REST_SECONDS)  # no longer in the list of hosts, or no list that can be read
        else:
            self._context.tasks.send(key, stale.host, partial(end, engine, paths))

    def _take(self, stale: Stale, key: str, errand: Task) -> None:
        error = errand.future.exception()
        if error is not None:
            if not isinstance(error, (EngineError, HostError)):
                self._tell(stale, key, error)
            return
        seen, stopped = errand.future.result()
        if stopped:
            self._stopped.add(key)
        if seen.presence in GONE:
            how = "it still ran and was stopped" if key in self._stopped else GONE[seen.presence]
            transitions.stale_gone(self._context.store, stale, how, at=self._context.now())

    def _tell(self, stale: Stale, key: str, error: BaseException) -> None:
        """Tell of an error that nobody foresaw; what the attempt holds stays leased, and it is tried again later."""
        self._context.rest(key, LONG_REST_SECONDS)
        said = clean(f"attempt {stale.attempt} on {stale.host}, which was given up, could not be ended: {error!r}")
        with self._context.store.transaction():
            self._context.store.add_event(
                stale.job_id, stale.attempt, "stumbled", {"because": said}, at=self._context.now()
            )
