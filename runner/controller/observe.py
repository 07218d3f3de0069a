"""Asks an engine about an attempt, reads its log and stops it; this runs in a worker thread."""

from __future__ import annotations

from dataclasses import dataclass

from rung.jobs.job import Attempt
from rung.jobs.model.paths import AttemptPaths
from rung.runner.controller.log_watch import LogWatch
from rung.runner.seams.engine import Engine, Observation, Presence


@dataclass(frozen=True)
class Look:
    """What a look at an attempt has shown; `more`: its log has more to read, and nothing is judged by its end yet."""

    observation: Observation
    more: bool = False


def observe(engine: Engine, paths: AttemptPaths, watch: LogWatch, stop: bool | None, started: bool) -> Look:
    """Observe an attempt and read its new log lines; `stop`: stop it, True by force."""
    observation = engine.observe(paths)
    if started and observation.presence is Presence.ABSENT:
        observation = Observation(Presence.LOST, detail="the container is gone from the host")
    # One that cannot be followed now may run all the same.
    if observation.presence in (Presence.RUNNING, Presence.WAITING):
        more = watch.read()
        if stop is not None:
            engine.stop(paths, force=stop)
        return Look(observation, more)
    if observation.presence in (Presence.ENDED, Presence.LOST):
        if watch.read():
            return Look(observation, more=True)
        watch.read_to_end()
    return Look(observation)


def stop_unstarted(engine: Engine, paths: AttemptPaths) -> Observation:
    """Stop an attempt that should not have started, and return its state after that."""
    engine.stop(paths, force=False)
    return engine.observe(paths)


def had_finished(attempt: Attempt, paths: AttemptPaths) -> bool:
    """Return whether a run that was to be stopped in good health had finished before.

    One that answers the signal with exit code 0 has not: what tells them apart is that no signal was sent yet, or that
    no step was left to make.
    """
    return attempt.exit_code == 0 and (attempt.made_all_steps or not paths.stop.exists())
